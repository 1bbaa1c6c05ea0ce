package clusterobjects

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func find[T object.Object](v view, k object.Key) (o T, err error) {
	if k.Name == "" { // no object of the API has an empty name
		return o, notFound(k)
	}
	v.finder.mu.Lock()
	defer v.finder.mu.Unlock()
	e, err := v.finder.entry(v.user, k)
	if err == nil {
		o = e.object.(T)
	}
	return o, err
}

// ConfigMap returns a ConfigMap.
func (v view) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return find[*v1.ConfigMap](v, object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name})
}

// Secret returns a Secret.
func (v view) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return find[*v1.Secret](v, object.Key{Kind: object.Secret, Namespace: namespace, Name: name})
}

// ServiceAccount returns a ServiceAccount.
func (v view) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return find[*v1.ServiceAccount](v, object.Key{Kind: object.ServiceAccount, Namespace: namespace, Name: name})
}

// RuntimeClass returns a RuntimeClass.
func (v view) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return find[*nodev1.RuntimeClass](v, object.Key{Kind: object.RuntimeClass, Name: name})
}

// PersistentVolumeClaim returns a PersistentVolumeClaim.
func (v view) PersistentVolumeClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return find[*v1.PersistentVolumeClaim](v,
		object.Key{Kind: object.PersistentVolumeClaim, Namespace: namespace, Name: name})
}

// PersistentVolume returns a PersistentVolume.
func (v view) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return find[*v1.PersistentVolume](v, object.Key{Kind: object.PersistentVolume, Name: name})
}

// CSIDriver returns a CSIDriver.
func (v view) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return find[*storagev1.CSIDriver](v, object.Key{Kind: object.CSIDriver, Name: name})
}

// VolumeAttachment returns a VolumeAttachment.
func (v view) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return find[*storagev1.VolumeAttachment](v, object.Key{Kind: object.VolumeAttachment, Name: name})
}

// PersistentVolumes fails: a node doesn't bind claims.
func (v view) PersistentVolumes(context.Context) ([]*v1.PersistentVolume, error) {
	return nil, errors.New("a node of a cluster may not list PersistentVolumes")
}

// Services returns the Services of a namespace that have a cluster IP, once all are listed.
func (v view) Services(_ context.Context, namespace string) ([]*v1.Service, error) {
	v.finder.mu.Lock()
	defer v.finder.mu.Unlock()
	e, err := v.finder.entry(v.user, object.Key{Kind: object.Service})
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(e.services[namespace]), func(a, b *v1.Service) int {
		return cmp.Compare(a.Name, b.Name)
	}), nil
}
