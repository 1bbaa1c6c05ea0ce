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
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// managed is an agent with a service manager that is notified of reloads, and when it is up and ends.
func managed(t *testing.T) (reloads, modules.Module, *net.UnixConn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() }) // a test may have closed it
	notifier, err := process.New(func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": socket}[name]
	}, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	service, workersReady := process.NewService(notifier), make(chan struct{})
	close(workersReady)
	r := reloads{service: service, events: events.Node{Recorder: events.New(10), Name: "n"}, meter: metrics.New(metrics.Info{}).Reloads, log: testr.New(t)}
	return r, serviceModule(service, notifier, "n", workersReady, func(time.Time) error { return nil }, testr.New(t)), manager
}

// received are the first lines of what the service manager has received by now.
func received(t *testing.T, manager *net.UnixConn) []string {
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

// A service manager that is reported a reload while the agent starts must not take that for
// the agent's being up, nor for its going on once it ends.
func TestReloadsAtAnyTimeOfLife(t *testing.T) {
	r, service, manager := managed(t)
	cfg := &config.Config{NodeName: "n"}
	reloads := func() []string {
		r.start()
		r.end(config.ReloadResult{Outcome: config.Applied, Before: cfg, Current: cfg})
		return received(t, manager)
	}
	if got := reloads(); !slices.Equal(got, []string{"STATUS=the"}) {
		t.Errorf("at start: %q", got)
	}
	r.start() // and is over when the agent is up
	if err := service.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.end(config.ReloadResult{Outcome: config.Unchanged, Before: cfg, Current: cfg})
	if got := received(t, manager); !slices.Equal(got, []string{"READY=1", "READY=1"}) {
		t.Errorf("a reload that the start overtakes: %q", got)
	}
	if got := reloads(); !slices.Equal(got, []string{"RELOADING=1", "READY=1"}) {
		t.Errorf("while it is up: %q", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	r.start() // and is over after the end has begun
	if err := service.Run(ended); err != nil {
		t.Fatal(err)
	}
	r.end(config.ReloadResult{Outcome: config.Unchanged, Before: cfg, Current: cfg})
	if got := received(t, manager); !slices.Equal(got, []string{"RELOADING=1", "STOPPING=1"}) {
		t.Errorf("a reload that the end overtakes: %q", got)
	}
	if got := reloads(); got != nil {
		t.Errorf("at the end: %q", got)
	}
}

// The agent's end is no failure because nobody hears of it.
func TestServiceManagerIsGone(t *testing.T) {
	_, service, manager := managed(t)
	if err := manager.Close(); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := service.Run(ended); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
