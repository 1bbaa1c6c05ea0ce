package view

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// TestNamed: whichever pods there are, those of one name are found, and no others.
func TestNamed(t *testing.T) {
	store := podstatus.NewStore()
	if got := named(store.List(), "a", "web"); len(got) > 0 {
		t.Errorf("found in nothing: %v", got)
	}
	want := map[string]int{}
	for i, id := range []types.NamespacedName{{Namespace: "b", Name: "web"}, {Namespace: "a", Name: "web"}, {Namespace: "a", Name: "web-1"}, {Namespace: "a", Name: "web"}, {Namespace: "ab", Name: "w"}, {Namespace: "c", Name: "x"}} {
		p := &v1.Pod{}
		p.Namespace, p.Name, p.UID = id.Namespace, id.Name, types.UID(fmt.Sprint("u", i))
		store.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{}})
		want[id.String()]++
	}
	list := store.List()
	for _, namespace := range []string{"", "a", "ab", "b", "c", "d"} {
		for _, name := range []string{"", "w", "web", "web-1", "web-2", "x"} {
			id := types.NamespacedName{Namespace: namespace, Name: name}.String()
			got := named(list, namespace, name)
			for _, e := range got {
				if e.Pod.Namespace != namespace || e.Pod.Name != name {
					t.Errorf("%s: found %s/%s", id, e.Pod.Namespace, e.Pod.Name)
				}
			}
			if len(got) != want[id] {
				t.Errorf("%s: found %d pods, want %d", id, len(got), want[id])
			}
		}
	}
}
