package desired

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Set is the desired state of this node at one time: pods and the objects that they refer to. It is immutable.
type Set struct {
	// Pods are sorted by namespace and name. Names and UIDs are unique.
	Pods []*pod.Desired
	// Stopped are pods that would be in Pods but were stopped by a user. They are sorted like Pods.
	Stopped []*pod.Desired
	// AllStopped says that no pod should run any more: the agent is about to exit.
	AllStopped bool
	// Objects are the other objects that manifests define. The pointer is the same as in the previous set if nothing
	// about them changed. It is never nil in a Merger's sets.
	Objects *object.Set
	// Problems are all problems of the sources' reports, sorted by source and origin.
	Problems []pod.Problem
	// Refused are pods of an API server that aren't run, because they can't be run or because another pod has their
	// name or UID.
	Refused []pod.Refusal
	// Synced says that every source has reported at least once. While it is false, a running pod that isn't in Pods may
	// still be reported, so nothing that runs may be removed for that reason. Objects is already complete once
	// LocalSynced is true.
	Synced bool
	// LocalSynced says that every local source has reported at least once: the removal of pods that no manifest has
	// any more doesn't wait for an API server, which may be one of these pods.
	LocalSynced bool
	// Listed says that every source has reported or can't be reached: if one pod has to end so that others run, it can
	// be chosen from Pods.
	Listed bool

	byUID map[types.UID]*pod.Desired
	// admitted has the results of applying RuntimeClasses, by the pods that sources claim.
	admitted map[*pod.Desired]admission
	// extended has the results of adding containers, by the pods without these containers.
	extended map[*pod.Desired]extended
}

// Has reports whether a source has the pod with this UID, even if a user has stopped it.
func (s *Set) Has(uid types.UID) bool {
	return s.byUID[uid] != nil || slices.ContainsFunc(s.Stopped, func(d *pod.Desired) bool { return d.Pod.UID == uid })
}

// Get returns the pod with this UID that should run, or nil.
func (s *Set) Get(uid types.UID) *pod.Desired { return s.byUID[uid] }
