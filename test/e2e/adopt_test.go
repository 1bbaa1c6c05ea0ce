package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// twoContainers is a pod with a second container beside "web".
func twoContainers(name string) string {
	return pod(name) + "  - name: other\n    image: " + node.Image + "\n    args: [sleep, 1h]\n"
}

// noRestarts is the condition that no container of any pod has restarted.
func noRestarts(s local.Snapshot) error {
	for _, v := range s.Pods {
		for _, c := range v.Pod.Status.ContainerStatuses {
			if c.RestartCount != 0 {
				return fmt.Errorf("container %s of %s has restarted %d times", c.Name, v.Pod.Name, c.RestartCount)
			}
		}
	}
	return nil
}

// agentIs is the condition that the snapshot is of this process: after a restart,
// not of the one before.
func agentIs(n *node.Node) node.Condition {
	pid := n.PID()
	return func(s local.Snapshot) error {
		if s.Agent.PID != pid {
			return fmt.Errorf("agent %d answers, want %d", s.Agent.PID, pid)
		}
		return nil
	}
}

// A stopped agent leaves its pods, and a new one takes them over as they are;
// what has changed meanwhile is caught up with.
func TestAdoption(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", twoContainers("a"))
	n.Write("b.yaml", pod("b"))
	n.Write("c.yaml", pod("c"))
	n.Await("three pods run", node.Ready("a", "b", "c"))
	before := n.RunningIDs()
	containerd := n.Containerd()

	n.Stop()
	unchanged(t, before, n.RunningIDs())
	n.Start()
	n.Await("the pods are adopted", agentIs(n), node.Ready("a", "b", "c"), node.Only("a", "b", "c"), noRestarts)

	n.Kill()
	unchanged(t, before, n.RunningIDs())
	n.Remove("b.yaml")
	n.Write("c.yaml", pod("c", greeting("changed")))
	n.Write("d.yaml", pod("d"))
	n.Start()
	n.Await("the changes are caught up with", agentIs(n), node.Ready("a", "c", "d"), node.Only("a", "c", "d"), noRestarts)
	n.Eventually("what runs is what is wanted", n.Running("a/web", "a/other", "c/web", "d/web"))
	after := n.RunningIDs()
	for _, name := range []string{"a-node1/web", "a-node1/other"} {
		if after[name] != before[name] {
			t.Errorf("container %s was replaced", name)
		}
	}
	if after["c-node1/web"] == before["c-node1/web"] {
		t.Error("the changed pod still runs its old container")
	}
	if now := n.Containerd(); now != containerd {
		t.Errorf("containerd was process %d and is %d: it should have been adopted", containerd, now)
	}
}

// A containerd that an agent with few files at its disposal has started is started again by one with more; pods run on.
func TestAdoptedContainerdWithFewFiles(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{})
	n.Write("a.yaml", pod("a"))
	n.StartAs(node.Life{Before: "ulimit -n 256"})
	n.Await("the pod runs", node.Ready("a"))
	before, containerd := n.RunningIDs(), n.Containerd()
	if got := openFiles(t, containerd); got > 256 {
		t.Fatalf("containerd may have %d files open already", got)
	}
	n.Kill()
	n.Start()
	n.Await("the pod is adopted", agentIs(n), node.Ready("a"), noRestarts)
	unchanged(t, before, n.RunningIDs())
	if now := n.Containerd(); now == containerd || openFiles(t, now) <= 256 {
		t.Errorf("containerd was %d, is %d and may have %d files open", containerd, now, openFiles(t, now))
	}
	if log := n.Logged(); !strings.Contains(log, "it may have 256 files open at once, and a new one") {
		t.Error("the log doesn't say why containerd was restarted")
	}
	n.Kill()
	containerd = n.Containerd()
	n.Start()
	n.Await("the pod is adopted again", agentIs(n), node.Ready("a"), noRestarts)
	if now := n.Containerd(); now != containerd {
		t.Error("containerd was restarted without need")
	}
}

// Containers outlive containerd in their shims.
func TestContainerdKilled(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", twoContainers("a"))
	n.Write("b.yaml", pod("b"))
	s := n.Await("two pods run", node.Ready("a", "b"))
	before, pid := n.RunningIDs(), n.Containerd()
	ip := view(t, s, "b").Pod.Status.PodIP

	n.SignalContainerd(syscall.SIGKILL)
	n.Write("c.yaml", pod("c"))
	n.Remove("a.yaml")
	n.Await("a new pod runs and the removed one is gone", node.Ready("b", "c"), node.Only("b", "c"), noRestarts)
	n.Eventually("what runs is what is wanted", n.Running("b/web", "c/web"))
	if n.Containerd() == pid {
		t.Fatal("containerd wasn't killed")
	}
	if now := n.RunningIDs()["b-node1/web"]; now != before["b-node1/web"] {
		t.Errorf("b's container was replaced: %s, before %s", now, before["b-node1/web"])
	}
	n.Eventually("b still answers", answers("http://"+ip+":8080/", "b-node1"))

	// Both at once, and again: the second start finds what the first left.
	before = n.RunningIDs()
	for range 2 {
		n.SignalContainerd(syscall.SIGKILL)
		n.Kill()
		n.Start()
		n.Await("the pods are adopted", agentIs(n), node.Ready("b", "c"), node.Only("b", "c"), noRestarts)
		unchanged(t, before, n.RunningIDs())
	}
}

// A containerd that answers nothing says nothing of containers, and is replaced under them.
func TestContainerdHangs(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("p.yaml", toolPod(n, "p", containers(
		tool("main", "act", "livenessProbe: {exec: {command: [tools, check, /diary/well]}, periodSeconds: 1, failureThreshold: 1}"))))
	touch(t, n, "p", "well")
	n.Await("it runs", node.Ready("p"))
	before, pid := n.RunningIDs(), n.Containerd()

	n.SignalContainerd(syscall.SIGSTOP)
	n.AwaitEvent("p", "Unhealthy", "{main}", "the container runtime doesn't answer")
	n.Eventually("the node says so", func() error {
		if text, _ := n.Deckhand("version"); !strings.Contains(text, "DeadlineExceeded") && !strings.Contains(text, "context deadline exceeded") {
			return fmt.Errorf("version: %s", text)
		}
		return nil
	})
	n.Eventually("containerd is replaced", func() error {
		if now := n.Containerd(); now == 0 || now == pid {
			return fmt.Errorf("it is process %d, and was %d", now, pid)
		}
		return nil
	})
	n.Write("next.yaml", toolPod(n, "next", containers(tool("main", "act"))))
	n.Await("pods start again, and nothing was restarted", node.Ready("p", "next"), noRestarts)
	after := n.RunningIDs()
	for name, id := range before {
		if after[name] != id {
			t.Errorf("%s is %s, and was %s", name, after[name], id)
		}
	}
	untouch(t, n, "p", "well")
	n.Await("a probe that fails counts", restarted("p", 1))
}

// A second agent on the same root directory says who is there and touches nothing.
func TestSecondAgentIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	n.Await("the pod runs", node.Ready("a"))
	before := n.RunningIDs()
	output, code := n.RunSecond()
	if code == 0 || !strings.Contains(output, fmt.Sprintf("process %d already uses this root directory", n.PID())) {
		t.Errorf("the second agent ended with %d and said %q", code, output)
	}
	n.Await("the first agent goes on", agentIs(n), node.Ready("a"))
	unchanged(t, before, n.RunningIDs())
}

// Two agents with two root directories share a host.
func TestTwoAgentsSideBySide(t *testing.T) {
	t.Parallel()
	one, two := start(t), start(t)
	both := map[*node.Node]string{one: "of one", two: "of two"}
	for n, text := range both {
		n.Write("a.yaml", pod("a", greeting(text), fmt.Sprintf("ports: [{containerPort: 8080, hostPort: %d}]", n.Port(2))))
	}
	for n, text := range both {
		n.Await("the pod runs", node.Ready("a"), node.Only("a"))
		n.Eventually("the pod answers", answers(fmt.Sprintf("http://127.0.0.1:%d/", n.Port(2)), text))
	}
	kept := two.RunningIDs()
	one.Remove("a.yaml")
	one.Await("one's pod is gone", node.Only())
	one.Eventually("one's pod leaves nothing", one.PodLeftovers)
	two.Await("two's pod runs", node.Ready("a"))
	unchanged(t, kept, two.RunningIDs())
	two.Eventually("two's pod answers", answers(fmt.Sprintf("http://127.0.0.1:%d/", two.Port(2)), "of two"))
}

// After a reboot nothing runs; pods come back and their restart counts go on.
func TestReboot(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string][]string{
		"records kept":    nil,
		"state forgotten": {"containerd/state", "cni/addresses"},
		"all forgotten":   {"containerd/state", "containerd/root", "cni/addresses", "images/.imported.json"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.Write("a.yaml", pod("a"))
			n.Write("b.yaml", pod("b", "args: [exit, '1', 300ms]"))
			before := n.Await("one pod runs and the other has restarted", node.Ready("a"), restarted("b", 1))
			n.PowerOff()
			for _, dir := range forget {
				if err := os.RemoveAll(filepath.Join(n.RootDir, dir)); err != nil {
					t.Fatal(err)
				}
			}
			n.Start()
			after := n.Await("the pods are back", agentIs(n), node.Ready("a"), restarted("a", 1), restarted("b", 2), node.Only("a", "b"))
			if view(t, before, "a").Pod.UID != view(t, after, "a").Pod.UID {
				t.Error("the pod's UID has changed")
			}
			if containerID(t, before, "a", "web") == containerID(t, after, "a", "web") {
				t.Error("the same container as before the reboot is reported to run")
			}
			n.Eventually("the pod answers", answers("http://"+view(t, after, "a").Pod.Status.PodIP+":8080/", "a-node1"))
		})
	}
}

// restarted is the condition that the pod's first container has restarted at least so often.
func restarted(name string, least int32) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		list := v.Pod.Status.ContainerStatuses
		if len(list) == 0 {
			return errors.New("no container yet")
		}
		if list[0].RestartCount < least {
			return fmt.Errorf("%d restarts, want %d", list[0].RestartCount, least)
		}
		return nil
	})
}
