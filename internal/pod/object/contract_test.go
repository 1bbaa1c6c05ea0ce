package object_test

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
)

func TestContract(t *testing.T) {
	t.Run("manifests", func(t *testing.T) { objecttest.Run(t, manifests) })
	t.Run("an API server that takes its time and fails", func(t *testing.T) { objecttest.Run(t, objecttest.Remote) })
}

// manifests are all read, and edited as the test wants.
func manifests(*testing.T) *objecttest.Realm {
	var set atomic.Pointer[object.Set]
	set.Store(object.NewSet(nil, true))
	defined, changed := map[object.Key]*object.Desired{}, wake.NewKeyed[pod.Object]()
	update := func() {
		next := object.NewSet(slices.Collect(maps.Values(defined)), true)
		changed.Wake(next.Changed(set.Swap(next))...)
	}
	return &objecttest.Realm{
		Finder: object.NewLocal(set.Load), Source: pod.SourceFile, Other: pod.SourceAPI, Changed: changed,
		Lacks: func(k object.Kind) bool { return k == object.VolumeAttachment },
		Put: func(o object.Object) {
			d := object.NewDesired(o, pod.SourceFile, "/etc/pods/x.yaml")
			defined[d.Key()] = d
			update()
		},
		Remove: func(k object.Key) { delete(defined, k); update() },
	}
}
