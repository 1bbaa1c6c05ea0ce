package agent_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

// Whoever ends it before the pods are up mustn't take it that they are: by the exit code 0,
// which the end of a context stands for otherwise.
func TestRunOnceIsBrokenOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Images.Script("example.com/slow:1", node.PullBehaviour{Takes: time.Hour})
	r.want("slow", "  containers: [{name: main, image: \"example.com/slow:1\"}]\n")
	for _, when := range []string{"at once", "while an image is pulled"} {
		var out bytes.Buffer
		a, err := agent.New(r.cfg, agent.Options{Log: logr.Discard(), Once: &out})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if when == "at once" {
			cancel()
		}
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		if when != "at once" {
			r.await("a pull", func() string { return atLeast(r.Calls("PullImage"), 1) })
		}
		cancel()
		if err := <-done; err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "broken off") {
			t.Errorf("%s: it ends with %v, printed %q", when, err, &out)
		}
	}
}
