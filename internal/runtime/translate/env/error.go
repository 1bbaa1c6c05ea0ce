package env

import (
	"fmt"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Error says why a container's environment can't be made. Waiting for the runtime
// won't help: the pod or what it refers to has to change, so callers report it as
// CreateContainerConfigError. It has no value of any variable in it.
type Error struct {
	Container string
	// Where says which part of the spec it is about, in words.
	Where string
	// Object is the one that has to appear or to change; zero if there is none.
	Object pod.Object

	err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("container %s: %s: %v", e.Container, e.Where, e.err)
}

// Unwrap returns what is wrong; it wraps what Sources failed with, unless that something
// isn't there.
func (e *Error) Unwrap() error { return e.err }

// WaitsFor returns the object that has to appear or to change before trying again can
// help; ok is false if the problem is another one.
func (e *Error) WaitsFor() (object pod.Object, ok bool) { return e.Object, e.Object != pod.Object{} }
