package clusterobjects

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// A pod waits until its volume is in all three lists: each change of one of its entries wakes it.
func TestDiffering(t *testing.T) {
	none := nodefacts.Facts{InUse: []v1.UniqueVolumeName{"a", "c"}}
	found := none
	found.ReportedInUse, found.VolumesAttached = []v1.UniqueVolumeName{"b"}, []v1.AttachedVolume{{Name: "b"}}
	kept := found
	kept.InUse = []v1.UniqueVolumeName{"a", "b", "c"}
	detached := kept
	detached.VolumesAttached = nil
	for name, c := range map[string]struct {
		a, b  nodefacts.Facts
		names []v1.UniqueVolumeName
	}{
		"nothing":             {none, none, nil},
		"an earlier agent's":  {none, found, []v1.UniqueVolumeName{"b"}},
		"this agent keeps it": {found, kept, []v1.UniqueVolumeName{"b"}},
		"the same again":      {kept, kept, nil},
		"it is detached":      {kept, detached, []v1.UniqueVolumeName{"b"}},
		"it is gone":          {detached, none, []v1.UniqueVolumeName{"b"}},
		"only wanted":         {none, nodefacts.Facts{}, nil},
	} {
		changed := differing(volumesOf(&c.a), volumesOf(&c.b))
		if got := slices.Sorted(maps.Keys(changed)); !slices.Equal(got, c.names) {
			t.Errorf("%s: %v, want %v", name, got, c.names)
		}
	}
}
