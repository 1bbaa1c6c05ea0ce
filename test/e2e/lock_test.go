package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Of two agents with one lock file the second waits until the first has ended.
func TestLockFile(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(t.TempDir(), "lock")
	stays := node.New(t, binary, node.Options{Flags: []string{"--lock-file", lock}})
	yields := node.New(t, binary, node.Options{Flags: []string{"--lock-file", lock, "--exit-on-lock-contention"}})
	for _, n := range []*node.Node{stays, yields} {
		n.Write("a.yaml", pod("a"))
	}
	yields.Start()
	yields.Await("the first one's pod runs", node.Ready("a"))
	kept := yields.RunningIDs()

	stays.Start()
	if code := yields.Ends(); code != 0 {
		t.Errorf("the agent that was to make way for another ended with %d", code)
	}
	unchanged(t, kept, yields.RunningIDs())
	stays.Await("the second one's pod runs", node.Ready("a"))

	// Now the other way round, with one that doesn't make way.
	m := listenAsManager(t, filepath.Join(yields.Base, "notify"))
	awaitLock(yields, m, lock)
	if err := yields.Terminate(); err != nil {
		t.Errorf("an agent that waits for the lock ended with %v when it was stopped", err)
	}
	awaitLock(yields, m, lock)
	stays.Write("b.yaml", pod("b"))
	stays.Await("the first goes on", agentIs(stays), node.Ready("a", "b"))
	if out, code := yields.Deckhand("pods"); code == 0 || len(m.reported) > 0 {
		t.Errorf("the second goes on as well: %s", out)
	}
	stays.Stop()
	m.await(t, "READY")
	yields.Await("the second has its pod", agentIs(yields), node.Ready("a"), node.Only("a"), noRestarts)
	unchanged(t, kept, yields.RunningIDs())
	insist(t, yields)
	unchanged(t, kept, yields.RunningIDs())
}

// awaitLock starts an agent that has to wait for the lock, and waits until it says so.
func awaitLock(n *node.Node, m *manager, lock string) {
	before := len(n.Logged())
	n.StartAs(node.Life{Env: m.env()})
	n.Eventually("it says that it waits", func() error {
		if log := n.Logged()[before:]; !strings.Contains(log, "Waiting for another process to release the lock file") || !strings.Contains(log, lock) {
			return fmt.Errorf("it says %q", log)
		}
		return nil
	})
}

// insist signals a second time to an agent that takes its time to stop, as the runtime
// doesn't answer: it ends at once.
func insist(t *testing.T, n *node.Node) {
	t.Helper()
	n.SignalContainerd(syscall.SIGSTOP)
	defer n.SignalContainerd(syscall.SIGCONT)
	n.Write("late.yaml", pod("late"))
	n.Await("the runtime is asked for a sandbox", node.Each([]string{"late"}, func(v local.PodView) error {
		if !strings.Contains(v.Waiting(), "the sandbox is being created") {
			return fmt.Errorf("%q", v.Waiting())
		}
		return nil
	}))
	n.Signal(syscall.SIGTERM)
	<-time.After(1500 * time.Millisecond) // a signal within a second belongs to the same wish
	n.Signal(syscall.SIGINT)
	if code := n.Ends(); code != 130 {
		t.Errorf("after a second signal the agent ended with %d, want 130", code)
	}
}
