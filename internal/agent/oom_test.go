package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"

	"github.com/deckhand-node/deckhand/internal/report/events"
)

// TestNoKernelLog: an agent that can't read the kernel's log, as in a user namespace, or not any longer, says so once and goes on.
func TestNoKernelLog(t *testing.T) {
	for _, device := range []string{filepath.Join(t.TempDir(), "missing"), os.DevNull} {
		synctest.Test(t, func(t *testing.T) { withoutKernelLog(t, device) })
	}
}

func withoutKernelLog(t *testing.T, device string) {
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	m := oomModule(device, events.Node{Recorder: events.New(1), Name: "n"}, log)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	synctest.Wait()
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "SystemOOM") {
		t.Errorf("logged %q", logged)
	}
}
