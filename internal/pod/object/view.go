package object

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// View has the objects that one pod may see, each in its newest version. Its methods return at once, and are safe
// for concurrent use. The results are read-only.
//
// A method returns an object or an error. For a missing object, k8s.io/apimachinery/pkg/api/errors.IsNotFound is
// true for the error; it wraps ErrRefused if a manifest defines the object, but can't be used. If it isn't certain
// yet whether the object exists, the error is an *Unknown. Errors contain nothing of an object's content.
type View interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// Services returns the Services of a namespace, sorted by name. If it has none, that isn't an error.
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PersistentVolumes returns all PersistentVolumes, sorted by name. If some of them may be missing, it returns an
	// error: to choose the best one, or to decide that none fits, a caller needs all of them.
	PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error)
	// CSIDriver returns the CSIDriver object of the CSI driver with this name. A driver needn't have an object: if it
	// is missing, a caller uses defaults; if it is Unknown, a caller waits.
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	// VolumeAttachment returns the VolumeAttachment with this name. No manifest defines one.
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	// Admitted reports whether an API server has admitted the pod: the server has added missing fields, such as a
	// service account's pull secrets, and the cluster's controllers bind the pod's claims.
	Admitted() bool
	// Token returns a token that isn't due to be renewed. The error wraps ErrNoTokens if no API server issues tokens
	// to the pod.
	Token(ctx context.Context, r TokenRequest) (Token, error)
}

// Finder returns the View of each pod. There may be two objects of the same kind and name, one for pods from manifests,
// the other for pods of an API server. Only the pod's Source determines which of the two the pod sees; if that object
// is missing, the pod doesn't see the other one either.
type Finder interface {
	For(*pod.Desired) View
	// Await waits a few seconds for the responses to all of the pod's requests, so that the first request for an
	// object doesn't count as a failure. It reports whether any of the objects has changed after the time after.
	Await(ctx context.Context, uid types.UID, after time.Time) (changed bool)
	// Forget says that the pod doesn't need its objects for now.
	Forget(uid types.UID)
}

// Local is the Finder for objects from manifests, which only pods from manifests see. It is also the View of these
// pods. It is safe for concurrent use.
type Local struct {
	current func() *Set
}

// NewLocal returns a Finder for the objects in the Set that current returns, which must not be nil. Any goroutine
// may call current.
func NewLocal(current func() *Set) *Local { return &Local{current} }

// nothing is the View for pods of an API server: they see no objects from manifests.
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

// Secret returns a Secret. All of its values are in Data.
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

// Services returns the services of a namespace that were read so far. It doesn't wait for all sources: a source that
// can't be reached must not delay pods of other sources, which most likely don't use its services. The pods and objects
// of one source are read together.
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

// CSIDriver returns a CSIDriver.
func (l *Local) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return lookUp[*storagev1.CSIDriver](l.current(), Key{Kind: CSIDriver, Name: name})
}

// VolumeAttachment returns an error: no controller attaches volumes for pods from manifests.
func (l *Local) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return nil, &notFound{key: Key{Kind: VolumeAttachment, Name: name}}
}

// Admitted returns false: the pods come from manifests.
func (l *Local) Admitted() bool { return false }

// Await returns at once: no request is under way, and it may take long until a missing manifest is read.
func (l *Local) Await(context.Context, types.UID, time.Time) bool { return false }

// Forget does nothing: sources of manifests keep their objects.
func (l *Local) Forget(types.UID) {}

// Token returns an error that wraps ErrNoTokens.
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
