package object

import (
	"context"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Live answers from the newest set, always. Safe for concurrent use.
type Live struct {
	current func() *Set
}

// NewLive returns a view of what current returns, which is never nil and may be
// asked by any goroutine.
func NewLive(current func() *Set) *Live { return &Live{current} }

// ConfigMap is Set.ConfigMap of the newest set.
func (l *Live) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return l.current().ConfigMap(ctx, namespace, name)
}

// Secret is Set.Secret of the newest set.
func (l *Live) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return l.current().Secret(ctx, namespace, name)
}

// ServiceAccount is Set.ServiceAccount of the newest set.
func (l *Live) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return l.current().ServiceAccount(ctx, namespace, name)
}

// RuntimeClass is Set.RuntimeClass of the newest set.
func (l *Live) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return l.current().RuntimeClass(ctx, name)
}

// Services is Set.Services of the newest set.
func (l *Live) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	return l.current().Services(ctx, namespace)
}

// PersistentVolumeClaim is Set.PersistentVolumeClaim of the newest set.
func (l *Live) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return l.current().PersistentVolumeClaim(ctx, namespace, name)
}

// PersistentVolume is Set.PersistentVolume of the newest set.
func (l *Live) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return l.current().PersistentVolume(ctx, name)
}

// PersistentVolumes is Set.PersistentVolumes of the newest set.
func (l *Live) PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error) {
	return l.current().PersistentVolumes(ctx)
}
