package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What a person types, against the real agent.
func TestCommands(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	n.Write("b.yaml", pod("b", "args: [logs, '3']", "spec.restartPolicy: Never"))
	n.Await("one pod runs, one has ended", node.Ready("a"), node.Phase("b", v1.PodSucceeded))
	for _, c := range []struct{ command, want string }{
		{"pods", `(?m)^default +a-node1 +1/1 +Running +0 `},
		{"pods -o wide", `(?m)^default +a-node1 .* 10\.214\.`},
		// stdout and stderr come through two pipes, in no order.
		{"logs b", `^(line [123]\n){3}$`},
		{"logs b-node1 web --tail 1", `^line [123]\n$`},
		{"images", regexp.QuoteMeta(node.Image[:strings.LastIndex(node.Image, ":")])},
		{"events", `Started`},
		{"version", `containerd`},
	} {
		if out, code := n.Deckhand(strings.Fields(c.command)...); code != 0 || !regexp.MustCompile(c.want).MatchString(out) {
			t.Errorf("deckhand %s ended with %d and said %q, want %s", c.command, code, out, c.want)
		}
	}
	if out, code := n.Deckhand("logs", "nobody"); code == 0 || !strings.Contains(out, "nobody") {
		t.Errorf("deckhand logs nobody ended with %d and said %q", code, out)
	}
}

// A pod in the foreground lives as long as its command.
func TestRunInTheForeground(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	n.Await("a pod runs", node.Ready("a"))
	file := filepath.Join(n.Base, "r.yaml")
	if err := os.WriteFile(file, []byte(pod("r", "args: [logs, '100', 50ms]")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := n.Deckhand("run", n.Path("a.yaml")); code != 1 || !strings.Contains(out, "is already run from "+n.Path("a.yaml")) {
		t.Errorf("a pod that a manifest has was run: %d, %q", code, out)
	}
	n.Await("the manifest's pod runs on", node.Ready("a"), node.Only("a"), node.NoProblems)
	interrupt := n.Foreground(file)
	n.Await("the pod in the foreground runs", node.Ready("a", "r"), node.Only("a", "r"))
	n.Eventually("it has said something", logs(n, "r", "web", "line 1\n"))
	if out := interrupt(); !strings.Contains(out, "line 1") {
		t.Errorf("deckhand run printed no log: %q", out)
	}
	n.Await("it goes with its command", node.Only("a"), node.Ready("a"))
	n.Eventually("only the other one's container runs", n.Running("a/web"))
}

// A reset leaves nothing, whether pods run, and whether anybody is left who
// could stop them.
func TestReset(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*node.Node){
		"agent stopped":       (*node.Node).Stop,
		"all processes ended": (*node.Node).PowerOff,
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.Write("a.yaml", twoContainers("a"))
			n.Write("b.yaml", pod("b", fmt.Sprintf("ports: [{containerPort: 8080, hostPort: %d}]", n.Port(2))))
			n.Await("the pods run", node.Ready("a", "b"))
			if out, code := n.Deckhand("reset"); code != 2 || !strings.Contains(out, "2 pods") || !strings.Contains(out, n.RootDir) || !strings.Contains(out, "--yes") {
				t.Errorf("unasked, deckhand reset ended with %d and said %q", code, out)
			}
			if out, code := n.Deckhand("reset", "--dry-run"); code != 0 || !strings.Contains(out, "2 pods") {
				t.Errorf("deckhand reset --dry-run ended with %d and said %q", code, out)
			}
			if out, code := n.Deckhand("reset", "--yes", "--force"); code == 0 || !strings.Contains(out, fmt.Sprint(n.PID())) {
				t.Errorf("while the agent runs, deckhand reset --force ended with %d and said %q", code, out)
			}
			n.Await("the pods still run", node.Ready("a", "b"))
			before(n)
			n.TakeDown()
		})
	}
}

// lengthyPod is a pod that takes longer to end than a killer would wait: its preStop hook first, then its main container,
// then its sidecar.
func lengthyPod(n *node.Node) string {
	return toolPod(n, "a", "terminationGracePeriodSeconds: 60", initContainers(tool("sidecar", "act", "restartPolicy: Always")), containers(
		tool("main", "act -linger 1s", "lifecycle: {preStop: {exec: {command: [tools, act, -name, hook, -diary, /diary/log, -after, 11s]}}}")))
}

func endedInOrder(t *testing.T, n *node.Node) {
	t.Helper()
	inOrder(t, n, "a", "sidecar started", "main started", "hook started", "hook ended", "main got SIGTERM", "main ended", "sidecar got SIGTERM", "sidecar ended")
}

// A reset of a running agent's node stops the pods in order before it removes them.
func TestResetOfARunningAgent(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("a.yaml", lengthyPod(n))
	n.Await("the pod runs", node.Ready("a"))
	attached := n.Attached()
	if out, code := n.Deckhand("reset", "--yes"); code != 0 {
		t.Errorf("deckhand reset ended with %d: %s", code, out)
	}
	endedInOrder(t, n)
	n.Ends()
	n.NothingLeft(attached)
}

// Down gives pods their time, whether the agent runs or not, keeps images and volumes, and ends agent and containerd.
func TestDown(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*node.Node){
		"agent runs":         func(*node.Node) {},
		"agent killed":       (*node.Node).Kill,
		"manifests are gone": func(n *node.Node) { n.Kill(); n.Remove("a.yaml") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startTools(t)
			n.Write("a.yaml", lengthyPod(n))
			n.Await("the pod runs", node.Ready("a"))
			before(n)
			out, code := n.Deckhand("down")
			if code != 0 || !strings.Contains(out, "default/a-"+node.Name+": stopped") || !strings.Contains(out, "All pods are stopped") {
				t.Errorf("deckhand down ended with %d and said %q", code, out)
			}
			endedInOrder(t, n)
			if name == "agent runs" {
				if code := n.Ends(); code != 4 {
					t.Errorf("the agent ended with %d", code)
				}
			}
			if pid := n.Containerd(); pid != 0 {
				t.Errorf("containerd still runs as %d", pid)
			}
			if out, code := n.Deckhand("down"); code != 0 || !strings.Contains(out, "Nothing runs") {
				t.Errorf("down again ended with %d and said %q", code, out)
			}
			n.Write("a.yaml", toolPod(n, "b", "terminationGracePeriodSeconds: 2", containers(tool("main", "act", "imagePullPolicy: Never"))))
			n.Start()
			n.Await("another agent runs what is wanted, with the images that were kept", node.Ready("b"), node.Only("b"))
		})
	}
}

// isStopped is the condition that a pod is stopped.
func isStopped(name string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		if !v.Stopped {
			return fmt.Errorf("pod %s isn't stopped, but %s", name, v.Word())
		}
		return nil
	})
}

// Stopped pods stay so across restarts of the agent and edits; what is stopped ends in order, also when the agent is killed
// meanwhile; and a restart begins anew.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	command := func(want string, args ...string) {
		t.Helper()
		if out, code := n.Deckhand(args...); code != 0 || out != want {
			t.Errorf("deckhand %v ended with %d and said %q", args, code, out)
		}
	}
	const full = "default/a-" + node.Name
	n.Write("a.yaml", lengthyPod(n))
	n.Write("b.yaml", toolPod(n, "b", containers(tool("main", "act -exit 1 -after 1s -first /diary/first"))))
	s := n.Await("the pods run, one after a restart", node.Ready("a", "b"), runs("b", "main", 1))
	command("default/b-"+node.Name+": restarted\n", "restart", "b")
	again := n.Await("it was started anew", node.Ready("b"), runs("b", "main", 0))
	if containerID(t, s, "b", "main") == containerID(t, again, "b", "main") || containerID(t, s, "a", "main") != containerID(t, again, "a", "main") {
		t.Error("not the pod that was named was restarted")
	}

	command(full+": stopped\n", "stop", "a")
	endedInOrder(t, n)
	n.Await("it is stopped", isStopped("a"), node.Ready("b"))
	n.Stop()
	n.Start()
	n.Await("it stays so", isStopped("a"), node.Ready("b"))
	n.Write("a.yaml", lengthyPod(n)+"  hostname: edited\n")
	n.Await("it stays so when it is edited", isStopped("a"), func(s local.Snapshot) error {
		if v := node.Find(s, "a"); v.Pod.Spec.Hostname != "edited" {
			return errors.New("the edit wasn't read")
		}
		return nil
	})
	if times(t, n, "a", "main started") != 1 {
		t.Error("it was started")
	}
	command(full+": started\n", "start", "a")
	n.Await("it runs again", node.Ready("a"))

	// A stop goes on after the agent was killed.
	untouch(t, n, "a", "log")
	stop := n.Deckhand
	ended := make(chan int, 1)
	go func() { _, code := stop("stop", "a"); ended <- code }()
	inOrder(t, n, "a", "hook started")
	n.Kill()
	if code := <-ended; code == 0 {
		t.Error("the command is content, though the agent was killed")
	}
	n.Start()
	n.Await("it is stopped", isStopped("a"), node.Ready("b"))
	inOrder(t, n, "a", "hook ended", "main got SIGTERM", "main ended", "sidecar got SIGTERM", "sidecar ended")
	if out, code := n.Deckhand("stop", "c"); code != 1 || !strings.Contains(out, `pod "c" not found`) {
		t.Errorf("deckhand stop of no pod ended with %d and said %q", code, out)
	}
}
