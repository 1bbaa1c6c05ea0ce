package object

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// View holds the objects that one pod may see, each in its newest version. Its methods answer at once, and are safe for
// concurrent use; results are read-only.
//
// A method returns an object or an error: for a missing object one for which
// k8s.io/apimachinery/pkg/api/errors.IsNotFound is true (ErrRefused: it is defined, but can't be used); an *Unknown if
// it isn't certain yet. An error contains nothing of an object's content.
type View interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// Services returns those of a namespace, sorted by name. None is no error.
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PersistentVolumes returns all of them, sorted by name, or an error: the choice of the best one, or the decision
	// that there is none, needs all of them.
	PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error)
	// Admitted reports whether an API server has admitted the pod: it has completed what the pod leaves open, as a
	// service account's pull secrets, and claims are bound there.
	Admitted() bool
	// Token returns a token that isn't due to be renewed. The error is ErrNoTokens where there are none.
	Token(ctx context.Context, r TokenRequest) (Token, error)
}

// Finder gives each pod its view. Two objects of one name may be there, one for the pods of manifests, the other for
// those of an API server: which of them a pod sees follows from its Source alone, and neither stands in for the other.
type Finder interface {
	For(*pod.Desired) View
	// Await waits a few seconds for the answers to all of the pod's requests, so that an object requested for the first
	// time isn't a failure. It reports whether any of them has changed after a time.
	Await(ctx context.Context, uid types.UID, after time.Time) (changed bool)
	// Forget says that nothing is left of the pod that needs its objects, for now.
	Forget(uid types.UID)
}

// Local is the Finder for objects from manifests, which only pods from manifests see. It is itself their View. Safe for
// concurrent use.
type Local struct {
	current func() *Set
}

// NewLocal returns a finder in the set that current returns, which is never nil; current is called by any goroutine.
func NewLocal(current func() *Set) *Local { return &Local{current} }

// nothing is the view of manifests' objects for a pod of another realm.
var nothing = NewLocal(func() *Set { return &Set{synced: true} })

// For returns the pod's view.
func (l *Local) For(d *pod.Desired) View {
	if !d.Source.Local() {
		return nothing
	}
	return l
}

// ConfigMap returns a ConfigMap.
func (l *Local) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return lookUp[*v1.ConfigMap](l.current(), Key{ConfigMap, namespace, name})
}

// Secret returns a Secret, all of its values in Data.
func (l *Local) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return lookUp[*v1.Secret](l.current(), Key{Secret, namespace, name})
}

// ServiceAccount returns a ServiceAccount.
func (l *Local) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return lookUp[*v1.ServiceAccount](l.current(), Key{ServiceAccount, namespace, name})
}

// RuntimeClass returns a RuntimeClass.
func (l *Local) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return lookUp[*nodev1.RuntimeClass](l.current(), Key{Kind: RuntimeClass, Name: name})
}

// Services returns the services of a namespace that were read so far: a source that can't be reached must not hold up
// pods of other sources, which most likely have nothing to do with its services. The objects of one source are read at
// once, with its pods.
func (l *Local) Services(_ context.Context, namespace string) ([]*v1.Service, error) {
	return l.current().services[namespace], nil
}

// PersistentVolumeClaim returns a PersistentVolumeClaim.
func (l *Local) PersistentVolumeClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return lookUp[*v1.PersistentVolumeClaim](l.current(), Key{PersistentVolumeClaim, namespace, name})
}

// PersistentVolume returns a PersistentVolume.
func (l *Local) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return lookUp[*v1.PersistentVolume](l.current(), Key{Kind: PersistentVolume, Name: name})
}

// PersistentVolumes returns all PersistentVolumes once every source of manifests has reported.
func (l *Local) PersistentVolumes(context.Context) ([]*v1.PersistentVolume, error) {
	s := l.current()
	if !s.synced {
		return nil, reading(Key{Kind: PersistentVolume})
	}
	return s.volumes, nil
}

// Admitted is false.
func (l *Local) Admitted() bool { return false }

// Await returns at once: no request is under way, and an unread object may stay so for long.
func (l *Local) Await(context.Context, types.UID, time.Time) bool { return false }

// Forget does nothing: sources of manifests keep their objects.
func (l *Local) Forget(types.UID) {}

// Token says that there is none.
func (l *Local) Token(_ context.Context, r TokenRequest) (Token, error) {
	return Token{}, fmt.Errorf("a token of service account %s/%s: %w", r.Namespace, r.ServiceAccount, ErrNoTokens)
}

func lookUp[T Object](s *Set, k Key) (T, error) {
	if d := s.byKey[k]; d != nil {
		if o, ok := d.object.(T); ok {
			return o, nil
		}
	}
	var none T
	if !s.synced {
		return none, reading(k)
	}
	return none, &notFound{k, s.refused[k]}
}
