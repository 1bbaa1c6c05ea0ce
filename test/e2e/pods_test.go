package e2e

import (
	"fmt"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestAddChangeRemove(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a", greeting("first")))
	n.Write("b.yaml", pod("b"))
	before := n.Await("two pods run", node.Ready("a", "b"), node.Only("a", "b"))
	history := n.Watch()
	n.Eventually("the pod answers", answers("http://"+view(t, before, "a").Pod.Status.PodIP+":8080/", "first"))
	ids := n.RunningIDs()

	n.Write("a.yaml", pod("a", greeting("second")))
	after := n.Await("the changed pod runs", node.Changed("a", before), node.Ready("b"), node.Only("a", "b"))
	n.Eventually("the new version answers", answers("http://"+view(t, after, "a").Pod.Status.PodIP+":8080/", "second"))
	if now := n.RunningIDs(); now["b-node1/web"] != ids["b-node1/web"] {
		t.Errorf("pod b got a new container because a changed")
	}
	for _, what := range history.Overlaps() {
		t.Error(what)
	}

	n.Remove("a.yaml")
	n.Await("the removed pod is gone", node.Ready("b"), node.Only("b"))
	n.Remove("b.yaml")
	n.Await("no pod is left", node.Only())
	n.Eventually("pods leave nothing", n.PodLeftovers)
}

// The same manifest taken away and put back has the same UID: what stops and what
// starts must not be taken for each other.
func TestRemovedAndAddedAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	n.Await("the pod runs", node.Ready("a"))
	history := n.Watch()
	for round := range 3 {
		n.Remove("a.yaml")
		n.Write("a.yaml", pod("a"))
		// What comes later in the directory shows that this has been dealt with.
		later := fmt.Sprintf("later%d", round)
		n.Write(later+".yaml", pod(later))
		n.Await("both pods run", node.Ready("a", later), node.Only("a", later))
		n.Eventually("one container of each runs", n.Running("a/web", later+"/web"))
		n.Remove(later + ".yaml")
		n.Await("the later one is gone", node.Ready("a"), node.Only("a"))
	}
	n.Remove("a.yaml")
	n.Await("stopping", node.Stopping("a"))
	n.Write("a.yaml", pod("a"))
	n.Await("the pod runs again", node.Ready("a"), node.Only("a"))
	n.Eventually("one container runs", n.Running("a/web"))
	for _, what := range history.Overlaps() {
		t.Error(what)
	}
}
