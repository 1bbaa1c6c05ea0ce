package local

import (
	"context"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Agent is what the server needs of the agent. All methods may be called
// concurrently. What they return is read-only.
type Agent interface {
	// Snapshot returns the present state.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Pod returns one pod, or false if there is none of that name. Its Reasons may be shorter
	// than those of Snapshot.
	Pod(namespace, name string) (PodView, bool)
	// Details returns what is known of a pod beyond its PodView.
	Details(ctx context.Context, uid types.UID) Details
	// Journal returns what was decided about a pod lately, as a transcript: by this
	// agent or, if previous is set, by the one before. It returns false if there is none.
	Journal(uid types.UID, previous bool) ([]byte, bool)
	// Changed returns a one-slot channel that is filled whenever Snapshot or Pod
	// may answer differently, until cancel is called. What goes on and on, such as a pull,
	// fills it every second or so.
	Changed() (wake <-chan struct{}, cancel func())
	// Events returns what happened lately, in the order in which it was seen last: the
	// newest last.
	Events() []Event
	// EventsSince returns the events after that of this Seq, in that order.
	EventsSince(seq uint64) []Event
	// EventsChanged returns a one-slot channel that is filled whenever EventsSince has
	// more to return, until cancel is called.
	EventsChanged() (wake <-chan struct{}, cancel func())
	// Node returns what is known of the node, and what its pods hold.
	Node() (Node, error)
	// Configuration returns the configuration in force.
	Configuration() Configuration
	// Run adds the pods of a manifest until the Run is closed. Where the manifest
	// is at fault the error should be a *StatusError with 422, or 409 for names in use.
	Run(ctx context.Context, origin string, manifest []byte) (Run, error)
	// StopPods stops pods and keeps them stopped, or has them started again where restart is set. It returns when they
	// are gone, or started, or when ctx ends, which changes nothing about that. A *StatusError is
	// 404 for a pod that no source has, 409 for one that lives as long as a Run.
	StopPods(ctx context.Context, restart bool, names ...types.NamespacedName) error
	// StartPods has pods run again that were stopped; 404 for one that no source has and that isn't stopped.
	StartPods(names ...types.NamespacedName) error
	// StopAll has all pods stopped, and the agent end when they are gone.
	StopAll()
	// AddContainer adds an ephemeral container to a pod, which has this UID if one is given. A *StatusError is 404 for
	// a pod that no source has, 409 for one that can't be added to, and 422 for a container that can't be added.
	AddContainer(name types.NamespacedName, uid types.UID, c v1.EphemeralContainer) error
}

// Run is a set of pods that lives as long as somebody wants it.
type Run interface {
	// Pods returns their names as they run: static pods' names end in the node's.
	Pods() []types.NamespacedName
	// Lost returns an error once somebody else turns out to have the name of one of them.
	Lost() error
	// Close withdraws the pods, so that they are stopped and removed. It doesn't
	// wait for that.
	Close()
}

// StatusError is an error with its HTTP status.
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
