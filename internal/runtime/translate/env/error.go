package env

import (
	"fmt"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Error means that a container's environment can't be built. It is independent of the runtime: the pod or an object
// that it refers to has to change, so callers report it as CreateContainerConfigError. It contains no variable's
// value.
type Error struct {
	Container string
	// Where describes the part of the spec that the error is about.
	Where string
	// Object has to be created or changed; zero if there is none.
	Object pod.Object

	err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("container %s: %s: %v", e.Container, e.Where, e.err)
}

// Unwrap returns the cause. It wraps the error of Sources, unless the object or file doesn't exist.
func (e *Error) Unwrap() error { return e.err }

// WaitsFor returns the object that has to be created or changed before a retry can succeed; ok is false if the
// error has another cause.
func (e *Error) WaitsFor() (object pod.Object, ok bool) { return e.Object, e.Object != pod.Object{} }
