package desired

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Set is what should run on this node at one time, and what it refers to. It is immutable.
type Set struct {
	// Pods are sorted by namespace and name. Names and UIDs are unique.
	Pods []*pod.Desired
	// Stopped are the pods that would be in Pods, but that a person has stopped. They are sorted as those are.
	Stopped []*pod.Desired
	// AllStopped says that no pod is to run any more: the agent is about to end for good.
	AllStopped bool
	// Objects are what manifests define beside pods. It is the same pointer as in the
	// set before as long as nothing about them changed. It is never nil in a Merger's sets.
	Objects *object.Set
	// Problems are everything wrong with what the sources say, sorted by source
	// and origin.
	Problems []pod.Problem
	// Refused are pods of an API server that aren't run: they can't be, or another one has their name or UID.
	Refused []pod.Refusal
	// Synced says that every source has reported at least once. While it is
	// false, a running pod that isn't in Pods may still be wanted: nothing that
	// runs may be removed for its absence. Objects go by the local sources alone.
	Synced bool
	// LocalSynced says the same of the local sources: what no manifest has any more doesn't wait for an API server,
	// which may be one of them.
	LocalSynced bool

	byUID map[types.UID]*pod.Desired
	// admitted is what RuntimeClasses made of pods, by the pods that sources claim.
	admitted map[*pod.Desired]admission
	// extended is what containers that were added made of pods, by the pods as they were before.
	extended map[*pod.Desired]extended
}

// Has reports whether a source has the pod with this UID, though a person may have stopped it.
func (s *Set) Has(uid types.UID) bool {
	return s.byUID[uid] != nil || slices.ContainsFunc(s.Stopped, func(d *pod.Desired) bool { return d.Pod.UID == uid })
}

// Get returns the pod with this UID that should run, or nil.
func (s *Set) Get(uid types.UID) *pod.Desired { return s.byUID[uid] }
