package object

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrReading is in the error for an object that isn't known and may still become so
// by itself, as not all manifests were read yet.
var ErrReading = errors.New("manifests are still being read")

// ErrRefused is in the error for an object that isn't there although a manifest defines it,
// as there is a mistake in that. The error says so, and where.
var ErrRefused = errors.New("there is a mistake in its manifest")

// reading is the error for an object that may still become known.
type reading struct{ key Key }

func (e *reading) Error() string {
	return fmt.Sprintf("%s isn't known yet: %v", e.key.sought(), ErrReading)
}

func (e *reading) Unwrap() error { return ErrReading }

// notFound is the error for an object that no manifest defines, or only one that can't be
// used. By Status it is an API server's NotFound to whoever asks k8s.io/apimachinery/pkg/api/errors.
type notFound struct {
	key Key
	// refused is where a manifest defines it that can't be used; empty if there is none.
	refused string
}

func (e *notFound) Error() string {
	why := "no manifest defines it"
	if e.refused != "" {
		why = e.refused + " defines it, but there is a mistake in that; `deckhand why` tells which"
	}
	return fmt.Sprintf("%s not found%s (%s)", e.key.named(), e.key.where(), why)
}

// Is makes it ErrRefused if a manifest defines the object.
func (e *notFound) Is(target error) bool { return e.refused != "" && target == ErrRefused }

// Status is what an API server answers.
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
