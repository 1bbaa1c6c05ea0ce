package e2e

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// After a reboot, what has ended stays ended, what runs runs its init containers
// again, and what was edited and resized in place stays so.
func TestRebootOfEveryKind(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("job.yaml", toolPod(n, "job", "restartPolicy: OnFailure", containers(tool("main", "act -after 1ms"))))
	n.Write("late.yaml", toolPod(n, "late", "activeDeadlineSeconds: 1", containers(tool("main", "act"))))
	app := func(milli int64) string {
		return toolPod(n, "app",
			initContainers(tool("setup", "act -after 1ms"), tool("side", "act", "restartPolicy: Always")),
			containers(tool("main", "act", size(milli, 32), "lifecycle: {postStart: {exec: {command: [tools, append, /diary/log, hook]}}}",
				"readinessProbe: {exec: {command: [tools, check, /diary/log]}, periodSeconds: 1}")))
	}
	n.Write("app.yaml", app(50))
	n.Await("all is up", node.Ready("app"))
	n.Write("app.yaml", app(100))
	n.Await("it is resized", append(noResize("app"), hasSize("app", "main", 100, 32), observes("app", 2))...)
	// The second container in the text is the sidecar.
	edited := app(100)
	at := strings.Index(edited, "name: side")
	edited = edited[:at] + strings.Replace(edited[at:], tools1, tools2, 1)
	n.Write("app.yaml", edited)
	over := []node.Condition{node.Phase("job", v1.PodSucceeded), node.Phase("late", v1.PodFailed)}
	before := n.Await("it is edited", append(over, node.Ready("app"), observes("app", 3), runs("app", "side", 1), runs("app", "main", 0))...)
	inOrder(t, n, "app", "side ended", "side started") // what runs may not have written so yet
	n.PowerOff()
	n.Start()
	after := n.Await("all is as it was", append(append(over, noResize("app")...), agentIs(n), observes("app", 3), hasSize("app", "main", 100, 32),
		runs("app", "side", 2), runs("app", "main", 1), node.Only("job", "late", "app"))...)
	for _, name := range []string{"job", "late", "app"} {
		if a, b := view(t, before, name).Pod, view(t, after, name).Pod; a.UID != b.UID || !a.Status.StartTime.Equal(b.Status.StartTime) {
			t.Errorf("%s was %s of %s and is %s of %s", name, a.UID, a.Status.StartTime, b.UID, b.Status.StartTime)
		}
	}
	if c := status(t, after, "app", "setup"); c.RestartCount != 1 {
		t.Errorf("the init container is %+v, want it run again", c)
	}
	if c := status(t, after, "app", "side"); c.Image != tools2 {
		t.Errorf("the sidecar runs %s", c.Image)
	}
	inForce(t, n, string(view(t, after, "app").Pod.UID), containerID(t, after, "app", "main"), 200, 64)
	inOrder(t, n, "app", "setup ended", "main started", "setup started", "setup ended", "main started")
	inOrder(t, n, "app", "setup ended", "side started", "side ended", "side started", "setup ended", "side started")
	if count := times(t, n, "app", "hook"); count != 2 {
		t.Errorf("the hook ran %d times, want once for each start", count)
	}
	n.Eventually("nothing else runs", n.Running("app/side", "app/main"))
	for _, name := range []string{"job", "late", "app"} {
		remove(t, n, name)
	}
	n.Eventually("they leave nothing", n.PodLeftovers)
}
