package agent

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// What waits for objects, or images, is woken by later changes also after the clock was set back.
func TestMomentOnlyMovesForward(t *testing.T) {
	var m moment
	m.now()
	if age := time.Since(m.time()); age < 0 || age > time.Minute {
		t.Errorf("it was %v ago", age)
	}
	m.nanoseconds.Store(time.Now().Add(time.Hour).UnixNano()) // it was later then
	for range 3 {
		before := m.time()
		if m.now(); !m.time().After(before) {
			t.Errorf("%v came after %v", m.time(), before)
		}
	}
}

// TestResourcesOfTheObject: what only the node's object has counts, too, and 0 of it is what an agent's start made of it.
func TestResourcesOfTheObject(t *testing.T) {
	one, none := resource.MustParse("1"), resource.MustParse("0")
	there, awaited := forPods(&nodefacts.Facts{
		Allocatable:    v1.ResourceList{v1.ResourceCPU: one, "example.com/card": one},
		AwaitedPlugins: map[v1.ResourceName]bool{"example.com/away": true},
		Advertised:     v1.ResourceList{"example.com/card": none, "example.com/away": one, "example.com/dongle": one, "example.com/gone": none},
	})
	if want := (v1.ResourceList{v1.ResourceCPU: one, "example.com/card": one, "example.com/dongle": one}); !equality.Semantic.DeepEqual(there, want) {
		t.Errorf("there is %v, want %v", there, want)
	}
	if want := map[v1.ResourceName]bool{"example.com/away": true, "example.com/gone": true}; !maps.Equal(awaited, want) {
		t.Errorf("awaited are %v, want %v", awaited, want)
	}
}
