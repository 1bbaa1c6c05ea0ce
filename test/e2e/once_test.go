package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// An agent that is to bring the pods up once tells what came of each, and ends; the pods
// run on, and are the next agent's.
func TestRunOnce(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{})
	once := node.Life{Flags: []string{"--runonce"}}
	n.Write("good.yaml", twoContainers("good"))
	n.Write("job.yaml", pod("job", "args: [exit, '0']", "spec.restartPolicy: Never"))
	outcome(t, n.Run(once), 0, `default/good-node1: Running`, `default/job-node1: Completed`)
	if err := n.Running("good/web", "good/other")(); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
	before, containerd := n.RunningIDs(), n.Containerd()

	// What fails doesn't keep the rest from coming up, nor hide.
	n.Write("late.yaml", pod("late"))
	n.Write("bad.yaml", pod("bad", "imagePullPolicyy: Never"))
	n.Write("imageless.yaml", strings.ReplaceAll(pod("imageless"), node.Image, "127.0.0.1:1/nobody/has:1"))
	n.Write("crash.yaml", pod("crash", "args: [exit, '3']"))
	n.Write("failed.yaml", pod("failed", "args: [exit, '4']", "spec.restartPolicy: Never"))
	outcome(t, n.Run(once), 1,
		`default/crash-node1: CrashLoopBackOff \(container web: .*code 3.*\)`,
		`default/failed-node1: Error \(container web: ended with code 4\)`,
		`default/good-node1: Running`,
		`default/imageless-node1: ImagePullBackOff \(container web: .*127\.0\.0\.1:1/nobody/has.*\)`,
		`default/job-node1: Completed`,
		`default/late-node1: Running`,
		`\S+/bad\.yaml \(pod default/bad\): .*imagePullPolicyy: unknown field.*`)

	for _, name := range []string{"bad", "imageless", "crash", "failed"} {
		n.Remove(name + ".yaml")
	}
	n.Start()
	n.Await("an ordinary agent has the good pods", node.Ready("good", "late"), node.Phase("job", v1.PodSucceeded), node.Only("good", "late", "job"), noRestarts)
	for name, id := range before {
		if now := n.RunningIDs()[name]; now != id {
			t.Errorf("container %s was %s and is %s", name, id, now)
		}
	}
	if now := n.Containerd(); now != containerd {
		t.Errorf("containerd was process %d and is %d", containerd, now)
	}
}

// outcome fails the test unless an agent has ended with this code, and its standard output
// has a line for each of the patterns and no other.
func outcome(t *testing.T, end node.Ended, code int, patterns ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(end.Stdout, "\n"), "\n")
	if end.Code != code || len(lines) != len(patterns) {
		t.Fatalf("want exit code %d and %d lines, got %d with %q", code, len(patterns), end.Code, lines)
	}
	for _, p := range patterns {
		if !slices.ContainsFunc(lines, regexp.MustCompile("^"+p+"$").MatchString) {
			t.Errorf("no line %s in %q", p, lines)
		}
	}
}
