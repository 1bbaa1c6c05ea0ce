package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")
	kills = flag.Int("kills", 32, "how often the agent is killed or stopped")
)

// random returns the test's source of chance and says how to have it again.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("again with the same chance: go test ./test/e2e -run %s -seed %d", t.Name(), s)
	return rand.New(rand.NewPCG(s, s))
}

// wish is what the manifest directory of TestKilledAtRandomMoments says: the version
// of each pod.
type wish struct {
	n        *node.Node
	rand     *rand.Rand
	versions map[string]int
	next     int
}

// change adds, changes or removes one of a few pods.
func (w *wish) change() string {
	name := fmt.Sprintf("p%d", w.rand.IntN(4))
	if w.versions[name] > 0 && w.rand.IntN(2) == 0 {
		delete(w.versions, name)
		w.n.Remove(name + ".yaml")
		return "remove " + name
	}
	w.next++
	w.versions[name] = w.next
	w.n.Write(name+".yaml", pod(name, greeting(version(w.next))))
	return fmt.Sprintf("write %s version %d", name, w.next)
}

func version(v int) string { return fmt.Sprintf("version %d", v) }

// current is the condition that the pods wanted are wanted in this version.
func (w *wish) current(s local.Snapshot) error {
	for name, v := range w.versions {
		p := node.Find(s, name)
		if p == nil {
			return fmt.Errorf("pod %s isn't there", name)
		}
		if got := p.Pod.Spec.Containers[0].Env[0].Value; got != version(v) {
			return fmt.Errorf("pod %s has %s, want %s", name, got, version(v))
		}
	}
	return nil
}

// eventful is a pod with something to remember of each container.
func eventful(n *node.Node, name string) string {
	const probe = "{exec: {command: [tools, check, /diary/log]}, periodSeconds: 1}"
	return toolPod(n, name,
		initContainers(tool("setup", "act -after 1ms"), tool("side", "act", "restartPolicy: Always", "startupProbe: "+probe)),
		containers(tool("main", "act", "lifecycle: {postStart: {exec: {command: [tools, append, /diary/log, hook]}}, preStop: {sleep: {seconds: 1}}}",
			"startupProbe: "+probe, "livenessProbe: "+probe, "readinessProbe: "+probe)))
}

// Whenever the agent is killed, the next one goes on where it was: nothing
// restarts, nothing runs twice, nothing is orphaned.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	chance := random(t)
	n := startTools(t)
	n.Write("s.yaml", pod("s"))
	n.Write("t.yaml", twoContainers("t"))
	n.Write("u.yaml", eventful(n, "u"))
	n.Await("the pods that stay run", node.Ready("s", "t", "u"))
	stay, history := n.RunningIDs(), n.Watch()
	w := &wish{n: n, rand: chance, versions: map[string]int{}}
	for i := range *kills {
		for range 1 + chance.IntN(3) {
			t.Logf("%d: %s", i, w.change())
		}
		// The moment is to be any: from before the agent is up to when it is idle.
		delay := time.Duration(chance.Int64N(int64(1500 * time.Millisecond)))
		time.Sleep(delay)
		if chance.IntN(4) > 0 {
			n.Kill()
		} else {
			err := n.Terminate()
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() >= 0) {
				t.Errorf("stopped, the agent ended with %v", err) // -1 is that the signal itself ended it
			}
		}
		now := n.RunningIDs()
		for name, id := range stay {
			if now[name] != id {
				t.Fatalf("after kill %d, container %s is %q, was %q", i, name, now[name], id)
			}
		}
		n.Start()
	}
	names, containers := []string{"s", "t", "u"}, []string{"s/web", "t/web", "t/other", "u/side", "u/main"}
	for name := range w.versions {
		names, containers = append(names, name), append(containers, name+"/web")
	}
	n.Await("exactly what is wanted runs", agentIs(n), node.Ready(names...), node.Only(names...), w.current)
	if count := times(t, n, "u", "hook"); count != 1 {
		t.Errorf("the hook of a container that runs on was run %d times", count)
	}
	n.Eventually("exactly what is wanted runs in the runtime", n.Running(containers...))
	now := n.RunningIDs()
	for name, id := range stay {
		if now[name] != id {
			t.Errorf("container %s is %q, was %q", name, now[name], id)
		}
	}
	n.Eventually("no sandbox is orphaned", func() error {
		if got := len(n.Sandboxes()); got != len(names) {
			return fmt.Errorf("%d sandboxes for %d pods", got, len(names))
		}
		return nil
	})
	// A start that was cut off may count as a restart; a container that ran may not.
	for _, what := range append(history.Overlaps(), history.Restarts()...) {
		t.Error(what)
	}
	for _, name := range names {
		n.Remove(name + ".yaml")
	}
	n.Await("no pod is left", node.Only())
	n.Eventually("pods leave nothing", n.PodLeftovers)
}
