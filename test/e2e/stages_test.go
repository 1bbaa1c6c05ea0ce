package e2e

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestStages(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	for name, test := range map[string]func(*testing.T, *node.Node){
		"three init containers": testThreeInits, "two sidecars": testTwoSidecars,
		"restart rule": testRestartRule, "restart all containers": testRestartAll, "out of memory": testOutOfMemory,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

// Init containers run one after the other; one that fails is run again, and holds up the rest.
func testThreeInits(t *testing.T, n *node.Node) {
	n.Write("i.yaml", toolPod(n, "i",
		initContainers(tool("one", "act -after 100ms"), tool("two", "fail-once /diary/failed 3"), tool("three", "act -after 100ms")),
		containers(tool("main", "act"))))
	s := n.Await("it runs", node.Ready("i"), hasCondition("i", v1.PodInitialized, v1.ConditionTrue, ""))
	for name, restarts := range map[string]int32{"one": 0, "two": 1, "three": 0} {
		c := status(t, s, "i", name)
		if end := c.State.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" || !c.Ready || c.RestartCount != restarts {
			t.Errorf("%s is %+v, want it completed after %d restarts", name, c, restarts)
		}
	}
	if end := status(t, s, "i", "two").LastTerminationState.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("the second one's first end is reported as %+v", end)
	}
	inOrder(t, n, "i", "one started", "one ended", "three started", "three ended", "main started")
	remove(t, n, "i")
}

// Sidecars start in their order, each once the one before has started, and stop in
// the reverse order after the main containers.
func testTwoSidecars(t *testing.T, n *node.Node) {
	n.Write("s.yaml", toolPod(n, "s", "terminationGracePeriodSeconds: 30",
		initContainers(
			tool("first", "act", "restartPolicy: Always", "startupProbe: {exec: {command: [tools, check, /diary/up]}, periodSeconds: 1, failureThreshold: 100}"),
			tool("second", "act -linger 100ms", "restartPolicy: Always"),
			tool("setup", "act -after 50ms")),
		containers(tool("main", "act -linger 300ms"), tool("other", "act"))))
	n.AwaitEvent("s", "Unhealthy", "{first}", "Startup probe failed")
	n.Await("the next ones wait for the first", runs("s", "first", 0), node.Phase("s", v1.PodPending),
		hasCondition("s", v1.PodInitialized, v1.ConditionFalse, "ContainersNotInitialized"))
	if times(t, n, "s", "second started") > 0 {
		t.Error("the second sidecar didn't wait for the first one's startup probe")
	}
	touch(t, n, "s", "up")
	n.Await("all is up", node.Ready("s"))
	// Who starts right after another that nothing is known of but its start may be the first to write.
	for _, name := range []string{"second", "setup"} {
		inOrder(t, n, "s", "first started", name+" started")
	}
	for _, name := range []string{"main", "other"} {
		inOrder(t, n, "s", "setup ended", name+" started")
	}
	remove(t, n, "s")
	inOrder(t, n, "s", "main got SIGTERM", "main ended", "second got SIGTERM", "second ended", "first got SIGTERM", "first ended")
	inOrder(t, n, "s", "other ended", "second got SIGTERM")
}

// A container is started again for its exit code, though its pod never restarts.
func testRestartRule(t *testing.T, n *node.Node) {
	const rules = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]"
	n.Write("r.yaml", toolPod(n, "r", "restartPolicy: Never", containers(
		tool("again", "fail-once /diary/again 42", "restartPolicy: Never", rules),
		tool("once", "fail-once /diary/once 43", "restartPolicy: Never", rules))))
	s := n.Await("it has ended", node.Phase("r", v1.PodFailed), ended("r", "again", 0, "Completed"), ended("r", "once", 43, "Error"))
	if a, o := status(t, s, "r", "again"), status(t, s, "r", "once"); a.RestartCount != 1 || o.RestartCount != 0 {
		t.Errorf("there were %d and %d restarts, want 1 and 0", a.RestartCount, o.RestartCount)
	}
	remove(t, n, "r")
}

// All containers are started anew in the same sandbox, from the init containers on.
func testRestartAll(t *testing.T, n *node.Node) {
	n.Write("a.yaml", toolPod(n, "a", "restartPolicy: Never",
		initContainers(tool("setup", "act -after 1ms"), tool("side", "act", "restartPolicy: Always")),
		containers(
			tool("other", "act"),
			tool("main", "act -exit 88 -after 300ms -first /diary/first", "restartPolicy: Never",
				"restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]"))))
	course := n.Follow("a", func(v local.PodView) string {
		for _, c := range v.Pod.Status.Conditions {
			if c.Type == v1.AllContainersRestarting {
				return fmt.Sprintf("restarting is %s at %s", c.Status, v.Pod.Status.PodIP)
			}
		}
		return ""
	})
	s := n.Await("all have been started anew", node.Ready("a"), runs("a", "main", 1), runs("a", "other", 1), runs("a", "side", 1),
		lastEnded("a", "main", 88, "Error"), hasCondition("a", v1.AllContainersRestarting, v1.ConditionFalse, ""))
	if setup := status(t, s, "a", "setup"); setup.RestartCount != 1 || setup.State.Terminated == nil {
		t.Errorf("setup is %+v, want it run again", setup)
	}
	seen, ip := course.End(), view(t, s, "a").Pod.Status.PodIP
	if !slices.Contains(seen, "restarting is True at "+ip) || seen[len(seen)-1] != "restarting is False at "+ip {
		t.Errorf("the condition went through %q, and the address is %s", seen, ip)
	}
	boxes := map[string]bool{}
	for _, c := range n.Containers() {
		if c.Pod == "a-"+node.Name {
			boxes[c.Sandbox] = true
		}
	}
	if len(boxes) != 1 {
		t.Errorf("the containers are in sandboxes %v, want one", boxes)
	}
	if count := times(t, n, "a", "setup started"); count != 2 {
		t.Errorf("setup ran %d times", count)
	}
	remove(t, n, "a")
}

func testOutOfMemory(t *testing.T, n *node.Node) {
	n.Write("o.yaml", toolPod(n, "o", containers(
		tool("main", "act -eat 256", "resources: {limits: {memory: 64Mi}}"), tool("other", "act"))))
	s := n.Await("it was killed and started again", lastEnded("o", "main", 137, "OOMKilled"), container("o", "main", func(c v1.ContainerStatus) error {
		if c.RestartCount == 0 {
			return fmt.Errorf("no restart")
		}
		return nil
	}))
	if other := status(t, s, "o", "other"); other.RestartCount != 0 {
		t.Errorf("the neighbour is %+v", other)
	}
	remove(t, n, "o")
}

// A pod that has run to its end stays as it ended, whatever becomes of the agent.
func TestEnds(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("job.yaml", toolPod(n, "job", "restartPolicy: OnFailure",
		initContainers(tool("side", "act", "restartPolicy: Always")), containers(tool("main", "fail-once /diary/failed 1"))))
	n.Write("fails.yaml", toolPod(n, "fails", "restartPolicy: Never",
		initContainers(tool("side", "act", "restartPolicy: Always")), containers(tool("main", "act -exit 5 -after 1ms"), tool("other", "act -after 1ms"))))
	n.Write("deadline.yaml", toolPod(n, "deadline", "activeDeadlineSeconds: 3", containers(tool("main", "act"))))
	final := []node.Condition{
		node.Phase("job", v1.PodSucceeded), ended("job", "main", 0, "Completed"), ended("job", "side", 0, "Completed"),
		hasCondition("job", v1.PodReady, v1.ConditionFalse, "PodCompleted"),
		node.Phase("fails", v1.PodFailed), ended("fails", "main", 5, "Error"), ended("fails", "other", 0, "Completed"), ended("fails", "side", 0, "Completed"),
		node.Phase("deadline", v1.PodFailed),
		node.Each([]string{"deadline"}, func(v local.PodView) error {
			if v.Pod.Status.Reason != "DeadlineExceeded" {
				return fmt.Errorf("reason %q", v.Pod.Status.Reason)
			}
			return nil
		}),
	}
	before := n.Await("all three have ended", final...)
	n.AwaitEvent("deadline", "DeadlineExceeded")
	if c := status(t, before, "job", "main"); c.RestartCount != 1 {
		t.Errorf("the job was tried %d times again, want once", c.RestartCount)
	}
	inOrder(t, n, "job", "side started", "side got SIGTERM", "side ended")
	n.Eventually("nothing runs", n.Running())
	n.Kill()
	n.Start()
	n.Write("later.yaml", toolPod(n, "later", containers(tool("main", "act"))))
	after := n.Await("all three are as they were", append(final, agentIs(n), node.Ready("later"))...)
	for pod, names := range map[string][]string{"job": {"side", "main"}, "fails": {"side", "main", "other"}, "deadline": {"main"}} {
		for _, name := range names {
			if a, b := status(t, before, pod, name), status(t, after, pod, name); a.ContainerID != b.ContainerID || a.RestartCount != b.RestartCount {
				t.Errorf("%s of %s is %+v, was %+v", name, pod, b, a)
			}
		}
	}
	n.Eventually("nothing else runs", n.Running("later/main"))
	for _, pod := range []string{"job", "fails", "deadline", "later"} {
		remove(t, n, pod)
	}
	n.Eventually("pods leave nothing", n.PodLeftovers)
}
