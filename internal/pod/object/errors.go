package object

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrRefused is wrapped by the error for an object that a manifest defines, but that can't be used because of a mistake
// in the manifest. The error names the manifest's path or URL.
var ErrRefused = errors.New("there is a mistake in its manifest")

// Unknown is the error for an object that may or may not exist, because it wasn't read yet or couldn't be read. Pods
// that wait for the object are woken once it has been read.
type Unknown struct {
	// Key is the requested object; without a name it stands for all objects of the kind.
	Key Key
	Why string
	// NotBefore is when to request the object again even without a wake-up; zero if that can't help.
	NotBefore time.Time
	// Away says that the API server doesn't answer any request.
	Away bool
}

func (e *Unknown) Error() string {
	if e.Key.Name == "" {
		return fmt.Sprintf("%ss aren't all known yet: %s", e.Key.Kind.resource(), e.Why)
	}
	return fmt.Sprintf("%s isn't known yet: %s", e.Key.sought(), e.Why)
}

// IsUnknown reports whether an error is, or wraps, an *Unknown.
func IsUnknown(err error) bool {
	var unknown *Unknown
	return errors.As(err, &unknown)
}

// IsAway reports whether an error is, or wraps, an *Unknown because the API server doesn't answer any request.
func IsAway(err error) bool {
	unknown, ok := errors.AsType[*Unknown](err)
	return ok && unknown.Away
}

// NotBefore returns Unknown.NotBefore, the time when to request the object again, if the error is or wraps an
// *Unknown; else zero.
func NotBefore(err error) time.Time {
	if unknown, ok := errors.AsType[*Unknown](err); ok {
		return unknown.NotBefore
	}
	return time.Time{}
}

// reading returns the error for an object while some manifests haven't been read yet: one of them may define the
// object.
func reading(k Key) error { return &Unknown{Key: k, Why: "manifests are still being read"} }

// notFound is the error for an object that no manifest defines, or only an invalid one. Because of its method
// Status, IsNotFound of k8s.io/apimachinery/pkg/api/errors is true for it.
type notFound struct {
	key Key
	// refused is the path or URL of the manifest that defines the object if the object can't be used; empty if there is
	// no such manifest.
	refused string
}

func (e *notFound) Error() string {
	why := "no manifest defines it"
	if e.refused != "" {
		why = e.refused + " defines it, but there is a mistake in that; `deckhand why` tells which"
	}
	return fmt.Sprintf("%s not found%s (%s)", e.key.named(), e.key.where(), why)
}

// Is makes errors.Is(err, ErrRefused) true if a manifest defines the object.
func (e *notFound) Is(target error) bool { return e.refused != "" && target == ErrRefused }

// Status returns the status that an API server would return for the missing object.
func (e *notFound) Status() metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: e.Error(),
		Details: &metav1.StatusDetails{Kind: e.key.Kind.resource(), Name: e.key.Name},
	}
}

func (k Key) named() string { return fmt.Sprintf("%s %q", k.Kind.resource(), k.Name) }

func (k Key) where() string {
	if !k.Kind.Namespaced() {
		return ""
	}
	return fmt.Sprintf(" in namespace %q", k.Namespace)
}

func (k Key) sought() string { return k.named() + k.where() }
