package desired

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Set is what should run on this node at one time. It is immutable.
type Set struct {
	// Pods are sorted by namespace and name. Names and UIDs are unique.
	Pods []*pod.Desired
	// Problems are everything wrong with what the sources say, sorted by source
	// and origin.
	Problems []pod.Problem
	// Synced says that every source has reported at least once. While it is
	// false, a running pod that isn't in Pods may still be wanted: nothing that
	// runs may be removed for its absence.
	Synced bool

	byUID map[types.UID]*pod.Desired
}

// Get returns the pod with this UID, or nil.
func (s *Set) Get(uid types.UID) *pod.Desired { return s.byUID[uid] }
