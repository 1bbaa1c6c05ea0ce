package local

import (
	"context"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Agent is the part of the agent that the server needs. All methods may be called concurrently. Callers must not
// change the results.
type Agent interface {
	// Snapshot returns the current state.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Pod returns one pod, or false if there is none of that name. Its Waits may have less detail than Snapshot's.
	Pod(namespace, name string) (PodView, bool)
	// Details returns details of a pod that its PodView doesn't have.
	Details(ctx context.Context, uid types.UID) Details
	// Journal returns the transcript of recent decisions about a pod, by this agent or, if previous is set, by the
	// one before. It returns false if there is none.
	Journal(uid types.UID, previous bool) ([]byte, bool)
	// NodeJournal returns the transcript of recent decisions about evictions by node pressure; empty if there was none.
	NodeJournal() []byte
	// Changed returns a channel with one slot, which gets a value whenever the results of Snapshot or Pod may have
	// changed, until cancel is called. During continuous progress, such as a pull, it gets one about once a second.
	Changed() (wake <-chan struct{}, cancel func())
	// Events returns recent events, sorted by their last occurrence: the newest last.
	Events() []Event
	// EventsSince returns the events whose Seq is higher than seq, sorted by Seq.
	EventsSince(seq uint64) []Event
	// EventsChanged returns a channel with one slot, which gets a value whenever EventsSince has more events to
	// return, until cancel is called.
	EventsChanged() (wake <-chan struct{}, cancel func())
	// Node returns the state of the node and the resources of its pods.
	Node(ctx context.Context) (Node, error)
	// Configuration returns the configuration in effect.
	Configuration() Configuration
	// Run runs the pods of a manifest until the returned Run is closed. If the manifest is invalid, the error should be
	// a *StatusError with code 422; if a pod's name is in use, with code 409.
	Run(ctx context.Context, origin string, manifest []byte) (Run, error)
	// StopPods stops pods and keeps them stopped, or restarts them if restart is set. It returns when the pods are gone
	// or restarted. If ctx ends before that, it returns and the operation continues. A *StatusError has code 404 for a
	// pod that no source has, and 409 for a pod of a Run.
	StopPods(ctx context.Context, restart bool, names ...types.NamespacedName) error
	// StartPods starts stopped pods. A *StatusError has code 404 for a pod that isn't stopped and that no source has.
	StartPods(names ...types.NamespacedName) error
	// StopAll stops all pods, and then the agent.
	StopAll()
	// AddContainer adds an ephemeral container to a pod. Unless uid is empty, the pod must have that UID. A
	// *StatusError has code 404 for a pod that no source has, 409 if the pod can't have another container, and 422 if
	// the container is invalid.
	AddContainer(name types.NamespacedName, uid types.UID, c v1.EphemeralContainer) error
	// Volumes lists the volumes that drivers may hold.
	Volumes() ([]Volume, error)
	// ForgetVolume removes a volume, by Volume.ID, without its driver. A *StatusError has code 404 if there is no such
	// volume, and 409 if it may be in use.
	ForgetVolume(ctx context.Context, id string) (Forgotten, error)
}

// Run is a set of pods that lives until it is closed.
type Run interface {
	// Pods returns the names of the pods on the node: the names of static pods end with the node's name.
	Pods() []types.NamespacedName
	// Lost returns an error once another source has a pod with one of these names.
	Lost() error
	// Close withdraws the pods, so that they are stopped and removed. It doesn't wait for that.
	Close()
}

// StatusError is an error with an HTTP status.
type StatusError struct {
	Code int
	Err  error
}

func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StatusError) Unwrap() error { return e.Err }

// IsNotFound reports whether the agent answered that something doesn't exist.
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}
