package e2e

import (
	"fmt"
	"strings"
	"testing"

	nouns "github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestEdits(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	for name, test := range map[string]func(*testing.T, *node.Node){
		"image": testEditImage, "image of a container that has ended": testEditEnded, "image that can't be had": testEditToNothing,
		"labels": testEditLabels, "command": testEditCommand, "ephemeral container": testEphemeral,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

// same fails the test unless the pod is the same one, of which only the
// containers named were replaced, and tells whether its hash has moved.
func same(t *testing.T, before, after local.Snapshot, name string, replaced ...string) {
	t.Helper()
	a, b := view(t, before, name).Pod, view(t, after, name).Pod
	if a.UID != b.UID {
		t.Errorf("the pod's UID was %s and is %s", a.UID, b.UID)
	}
	if a.Status.PodIP != b.Status.PodIP || !a.Status.StartTime.Equal(b.Status.StartTime) {
		t.Errorf("the pod had %s since %s, has %s since %s", a.Status.PodIP, a.Status.StartTime, b.Status.PodIP, b.Status.StartTime)
	}
	if a.Annotations[nouns.AnnotationConfigHash] == b.Annotations[nouns.AnnotationConfigHash] {
		t.Error("the edit didn't move config.hash")
	}
	for _, was := range a.Status.ContainerStatuses {
		now, want := status(t, after, name, was.Name), was.RestartCount
		other := false
		for _, r := range replaced {
			other = other || r == was.Name
		}
		if other {
			want++
		}
		if (now.ContainerID != was.ContainerID) != other || now.RestartCount != want {
			t.Errorf("container %s was %s (%d restarts) and is %s (%d)", was.Name, was.ContainerID, was.RestartCount, now.ContainerID, now.RestartCount)
		}
	}
}

// Another image restarts its container only, with the grace.
func testEditImage(t *testing.T, n *node.Node) {
	text := toolPod(n, "i", containers(tool("main", "act -linger 100ms"), tool("other", "act")))
	n.Write("i.yaml", text)
	before := n.Await("it runs", node.Ready("i"), observes("i", 1))
	inOrder(t, n, "i", "main started")
	n.Write("i.yaml", strings.Replace(text, tools1, tools2, 1))
	after := n.Await("the other image runs", observes("i", 2), runs("i", "main", 1), node.Ready("i"), lastEnded("i", "main", 0, "Completed"))
	same(t, before, after, "i", "main")
	if c := status(t, after, "i", "main"); c.Image != tools2 || c.ImageID == status(t, before, "i", "main").ImageID {
		t.Errorf("main runs %s %s", c.Image, c.ImageID)
	}
	n.Eventually("the other image's program runs", logs(n, "i", "main", "main version 2"))
	inOrder(t, n, "i", "main started", "main got SIGTERM", "main ended", "main started")
	n.AwaitEvent("i", "Killing", "{main}", "definition changed, will be restarted")
	remove(t, n, "i")
}

// Another image starts a container again that its pod wouldn't restart.
func testEditEnded(t *testing.T, n *node.Node) {
	text := toolPod(n, "v", "restartPolicy: Never", containers(tool("main", "act -exit 3"), tool("other", "act")))
	n.Write("v.yaml", text)
	before := n.Await("it runs", node.Ready("v"))
	inOrder(t, n, "v", "main started")
	n.Write("v.yaml", strings.Replace(text, tools1, tools2, 1))
	after := n.Await("the other image runs", node.Ready("v"), runs("v", "main", 1), observes("v", 2), lastEnded("v", "main", 3, "Error"))
	same(t, before, after, "v", "main")
	remove(t, n, "v")
}

// An edit that was a mistake is put right by the next one.
func testEditToNothing(t *testing.T, n *node.Node) {
	text := toolPod(n, "b", containers(tool("main", "act"), tool("other", "act")))
	n.Write("b.yaml", text)
	before := n.Await("it runs", node.Ready("b"))
	n.Write("b.yaml", strings.Replace(text, tools1, "127.0.0.1:1/nothing:1", 1))
	n.Await("the image can't be had", waiting("b", "ImagePullBackOff", "127.0.0.1:1/nothing:1"), runs("b", "other", 0))
	n.Write("b.yaml", strings.Replace(text, tools1, tools2, 1))
	after := n.Await("another one can", node.Ready("b"), runs("b", "main", 1), observes("b", 3))
	same(t, before, after, "b", "main")
	remove(t, n, "b")
}

// logs looks whether a container's log has the words.
func logs(n *node.Node, pod, container, words string) func() error {
	return func() error {
		if out, code := n.Deckhand("logs", pod, container); code != 0 || !strings.Contains(out, words) {
			return fmt.Errorf("its log ended with %d and is %q, want %q in it", code, out, words)
		}
		return nil
	}
}

func testEditLabels(t *testing.T, n *node.Node) {
	one := containers(tool("main", "act"))
	n.Write("l.yaml", labelledPod(n, "l", "{version: old}", one))
	before := n.Await("it runs", node.Ready("l"), observes("l", 1))
	n.Write("l.yaml", labelledPod(n, "l", "{version: new}", one))
	after := n.Await("the label changes", observes("l", 2), node.Ready("l"), node.Each([]string{"l"}, func(v local.PodView) error {
		if v.Pod.Labels["version"] != "new" {
			return fmt.Errorf("labels %v", v.Pod.Labels)
		}
		return nil
	}))
	same(t, before, after, "l")
	remove(t, n, "l")
}

// Anything else makes another pod, after the old one has ended in its time.
func testEditCommand(t *testing.T, n *node.Node) {
	n.Write("c.yaml", toolPod(n, "c", "terminationGracePeriodSeconds: 30", containers(tool("main", "act -linger 300ms"))))
	before := n.Await("it runs", node.Ready("c"))
	inOrder(t, n, "c", "main started")
	n.Write("c.yaml", toolPod(n, "c", "terminationGracePeriodSeconds: 30", containers(tool("main", "act -linger 301ms"))))
	after := n.Await("another pod runs", node.Changed("c", before), observes("c", 1), runs("c", "main", 0))
	if view(t, after, "c").Pod.Status.StartTime.Before(view(t, before, "c").Pod.Status.StartTime) {
		t.Error("the new pod started before the old one")
	}
	inOrder(t, n, "c", "main started", "main got SIGTERM", "main ended", "main started")
	remove(t, n, "c")
}

// An ephemeral container comes to a running pod and sees its target's processes.
func testEphemeral(t *testing.T, n *node.Node) {
	text := toolPod(n, "e", containers(tool("main", "act"), tool("other", "act")))
	n.Write("e.yaml", text)
	before := n.Await("it runs", node.Ready("e"))
	n.Write("e.yaml", text+"  ephemeralContainers:\n  - {name: debug, image: "+tools1+", args: [cat, /proc/1/cmdline], targetContainerName: main}\n")
	after := n.Await("the ephemeral container has run", ended("e", "debug", 0, "Completed"), node.Ready("e"), observes("e", 2))
	same(t, before, after, "e")
	n.Eventually("it saw its target", logs(n, "e", "debug", "act\n-name\nmain\n"))
	if list := view(t, after, "e").Pod.Status.EphemeralContainerStatuses; len(list) != 1 || list[0].RestartCount != 0 {
		t.Errorf("ephemeral containers are reported as %+v", list)
	}
	remove(t, n, "e")
}

// What was edited while the agent was away is brought to the running pod as well.
func TestEditWhileAway(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	text := toolPod(n, "a", containers(tool("main", "act"), tool("other", "act")))
	n.Write("a.yaml", text)
	before := n.Await("it runs", node.Ready("a"))
	n.Kill()
	n.Write("a.yaml", strings.Replace(text, tools1, tools2, 1))
	n.Start()
	after := n.Await("the other image runs", agentIs(n), node.Ready("a"), runs("a", "main", 1), observes("a", 2))
	same(t, before, after, "a", "main")
	if c := status(t, after, "a", "main"); c.Image != tools2 {
		t.Errorf("main runs %s", c.Image)
	}
	ids := n.RunningIDs()
	n.Kill()
	n.Start()
	again := n.Await("it is adopted", agentIs(n), node.Ready("a"), runs("a", "main", 1), runs("a", "other", 0), observes("a", 2), node.Only("a"))
	if a, b := view(t, after, "a").Pod, view(t, again, "a").Pod; a.UID != b.UID || a.Annotations[nouns.AnnotationConfigHash] != b.Annotations[nouns.AnnotationConfigHash] {
		t.Errorf("the pod was %s and is %s", a.UID, b.UID)
	}
	unchanged(t, ids, n.RunningIDs())
	remove(t, n, "a")
	n.Eventually("it leaves nothing", n.PodLeftovers)
}
