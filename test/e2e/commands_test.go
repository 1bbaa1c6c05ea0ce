package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

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
func TestDown(t *testing.T) {
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
			if out, code := n.Deckhand("down"); code == 0 || !strings.Contains(out, fmt.Sprint(n.PID())) {
				t.Errorf("while the agent runs, deckhand down ended with %d and said %q", code, out)
			}
			n.Await("the pods still run", node.Ready("a", "b"))
			before(n)
			n.TakeDown()
		})
	}
}
