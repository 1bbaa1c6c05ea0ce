package e2e

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Hooks that the agent died over are run again by the next one: each at least once.
func TestKilledDuringHooks(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	begin, end := serveHooks(t), serveHooks(t)
	n.Write("h.yaml", toolPod(n, "h", "terminationGracePeriodSeconds: 60", containers(
		tool("main", "act", "lifecycle: {postStart: "+begin.hook()+", preStop: "+end.hook()+"}"))))
	begin.awaitCall(t)
	n.Kill()
	n.Start()
	begin.awaitCall(t)
	n.Await("the container isn't started yet", agentIs(n), starting("h", "main"), readyIs("h", "main", false))
	close(begin.answer)
	n.Await("it is ready", agentIs(n), node.Ready("h"), runs("h", "main", 0))

	n.Remove("h.yaml")
	end.awaitCall(t)
	n.Kill()
	n.Start()
	end.awaitCall(t)
	if times(t, n, "h", "main got SIGTERM") > 0 {
		t.Error("the container was told to stop while its hook ran")
	}
	close(end.answer)
	n.Await("it isn't reported any more", agentIs(n), gone("h"))
	n.Eventually("it leaves nothing", n.PodLeftovers)
	inOrder(t, n, "h", "main started", "main got SIGTERM", "main ended")
	if starts, stops := times(t, n, "h", "main started"), times(t, n, "h", "main got SIGTERM"); starts != 1 || stops != 1 {
		t.Errorf("it was started %d times and stopped %d times", starts, stops)
	}
}

// A pod that is ready stays so while the agent is away and comes back; one that
// isn't doesn't become so; and what has restarted goes on counting.
func TestReadinessOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	const probe = "{exec: {command: [tools, check, /diary/well]}, periodSeconds: 1, failureThreshold: 1}"
	pods := []string{"well", "sick"}
	for _, name := range pods {
		touch(t, n, name)
		n.Write(name+".yaml", toolPod(n, name, containers(
			tool("main", "act -exit 7 -after 100ms -first /diary/first", "readinessProbe: "+probe,
				"startupProbe: {exec: {command: [tools, check, /diary/first]}, periodSeconds: 1}"))))
	}
	touch(t, n, "well", "well")
	up := []node.Condition{runs("well", "main", 1), runs("sick", "main", 1), node.Ready("well"), readyIs("sick", "main", false)}
	n.Await("one is ready, both have restarted", up...)
	n.AwaitEvent("sick", "Unhealthy", "Readiness")
	word := func(v local.PodView) string {
		for _, c := range v.Pod.Status.Conditions {
			if c.Type == v1.PodReady {
				return fmt.Sprintf("%s, ready is %s, %d restarts", v.Pod.Status.Phase, c.Status, v.Pod.Status.ContainerStatuses[0].RestartCount)
			}
		}
		return "" // a new agent hasn't looked at it yet
	}
	courses := map[string]*node.Course{}
	for _, name := range pods {
		courses[name] = n.Follow(name, word)
	}
	before := n.RunningIDs()
	for range 2 {
		n.Kill()
		n.Start()
		n.Await("both are as before", append(up, agentIs(n))...)
		// Until a probe of this agent's has had its say.
		n.AwaitEvent("sick", "Unhealthy", "Readiness")
	}
	for name, want := range map[string]string{"sick": "Running, ready is False, 1 restarts", "well": "Running, ready is True, 1 restarts"} {
		if seen := courses[name].End(); !slices.Equal(seen, []string{want}) {
			t.Errorf("the %s pod went through %q, want it to stay %q", name, seen, want)
		}
	}
	unchanged(t, before, n.RunningIDs())
	untouch(t, n, "well", "well")
	n.Await("a probe that fails after that counts", readyIs("well", "main", false))
}
