package agent

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/reload"
	"github.com/deckhand-node/deckhand/internal/systemd"
)

// managed is an agent, of which only what a reload tells is there, with a service manager.
func managed(t *testing.T) (*Agent, *net.UnixConn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() }) // a test may have closed it
	notifier, err := systemd.New(func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": socket}[name]
	}, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{NodeName: "n"}
	a := &Agent{cfg: cfg, service: &service{manager: notifier}, log: testr.New(t), events: events.New(10), metrics: metrics.New(metrics.Info{})}
	a.reloader = reload.New(cfg, reload.Options{})
	return a, manager
}

// told are the first lines of what the service manager was told by now.
func told(t *testing.T, manager *net.UnixConn) []string {
	t.Helper()
	var all []string
	buffer := make([]byte, 4096)
	for {
		// Whatever was sent is there already.
		if err := manager.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := manager.Read(buffer)
		if err != nil {
			return all
		}
		line, _, _ := strings.Cut(string(buffer[:n]), "\n")
		line, _, _ = strings.Cut(line, " ")
		all = append(all, line)
	}
}

// A service manager that is told of a reload while the agent starts must not take that for
// the agent's being up, nor for its going on once it ends.
func TestReloadsAtAnyTimeOfLife(t *testing.T) {
	a, manager := managed(t)
	reloads := func() []string {
		a.reloadBegins()
		a.reloadEnds(reload.Result{Outcome: reload.Applied, Before: a.cfg})
		return told(t, manager)
	}
	if got := reloads(); !slices.Equal(got, []string{"STATUS=the"}) {
		t.Errorf("at start: %q", got)
	}
	a.reloadBegins() // and is over when the agent is up
	if err := a.tellReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.reloadEnds(reload.Result{Outcome: reload.Unchanged, Before: a.cfg})
	if got := told(t, manager); !slices.Equal(got, []string{"READY=1", "READY=1"}) {
		t.Errorf("a reload that the start overtakes: %q", got)
	}
	if got := reloads(); !slices.Equal(got, []string{"RELOADING=1", "READY=1"}) {
		t.Errorf("while it is up: %q", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	a.reloadBegins() // and is over after the end has begun
	if err := a.attendService(ended); err != nil {
		t.Fatal(err)
	}
	a.reloadEnds(reload.Result{Outcome: reload.Unchanged, Before: a.cfg})
	if got := told(t, manager); !slices.Equal(got, []string{"RELOADING=1", "STOPPING=1"}) {
		t.Errorf("a reload that the end overtakes: %q", got)
	}
	if got := reloads(); got != nil {
		t.Errorf("at the end: %q", got)
	}
}

// The agent's end is no failure because nobody hears of it.
func TestServiceManagerIsGone(t *testing.T) {
	a, manager := managed(t)
	if err := manager.Close(); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := a.attendService(ended); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
