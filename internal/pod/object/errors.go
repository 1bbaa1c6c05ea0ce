package object

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrRefused is in the error for an object that isn't there although a manifest defines it,
// as there is a mistake in that. The error says so, and where.
var ErrRefused = errors.New("there is a mistake in its manifest")

// Unknown is the error for an object that may or may not exist, as it wasn't read yet or couldn't be. Pods that wait
// for it are woken when that changes.
type Unknown struct {
	// Key is the requested object; without a name it is all of a kind.
	Key Key
	Why string
	// NotBefore is when it is worth asking again all the same; zero if that can't help.
	NotBefore time.Time
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

// NotBefore is when to request the object of an error again; zero if the error doesn't say.
func NotBefore(err error) time.Time {
	var unknown *Unknown
	if errors.As(err, &unknown) {
		return unknown.NotBefore
	}
	return time.Time{}
}

// reading is the error for an object that a manifest which wasn't read yet may define.
func reading(k Key) error { return &Unknown{Key: k, Why: "manifests are still being read"} }

// notFound is the error for an object that no manifest defines, or only an invalid one. Its Status makes it an API
// server's NotFound for k8s.io/apimachinery/pkg/api/errors.
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

// Status is the status that an API server would answer with.
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
