package desired

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Set is what should run on this node at one time, and what it refers to. It is immutable.
type Set struct {
	// Pods are sorted by namespace and name. Names and UIDs are unique.
	Pods []*pod.Desired
	// Objects are what manifests define beside pods. It is the same pointer as in the
	// set before as long as nothing about them changed. It is never nil in a Merger's sets.
	Objects *object.Set
	// Problems are everything wrong with what the sources say, sorted by source
	// and origin.
	Problems []pod.Problem
	// Synced says that every source has reported at least once. While it is
	// false, a running pod that isn't in Pods may still be wanted: nothing that
	// runs may be removed for its absence.
	Synced bool

	byUID map[types.UID]*pod.Desired
	// admitted is what RuntimeClasses made of pods, by the pods that sources claim.
	admitted map[*pod.Desired]admission
}

// Get returns the pod with this UID, or nil.
func (s *Set) Get(uid types.UID) *pod.Desired { return s.byUID[uid] }
