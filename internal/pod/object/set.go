package object

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Set is all objects that manifests define, at one time. It is immutable, and so are
// the objects it returns. Whoever wants to know whether objects changed compares two sets'
// pointers: desired.Set holds the same one until an object does, or what is Synced.
type Set struct {
	list     []*Desired
	byKey    map[Key]*Desired
	services map[string][]*v1.Service
	volumes  []*v1.PersistentVolume
	// refused are the manifests that define an object that can't be used, by its name.
	refused map[Key]string
	synced  bool
}

// NewSet returns the set of these objects, whose keys differ. synced says that every
// source of manifests has reported: only then is what isn't there missing.
func NewSet(list []*Desired, synced bool) *Set {
	s := &Set{
		list:     slices.Clone(list),
		byKey:    make(map[Key]*Desired, len(list)),
		services: map[string][]*v1.Service{},
		synced:   synced,
	}
	slices.SortFunc(s.list, func(a, b *Desired) int {
		return cmp.Or(cmp.Compare(a.key.Kind, b.key.Kind), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	for _, d := range s.list {
		s.byKey[d.key] = d
		switch o := d.object.(type) {
		case *v1.Service:
			s.services[o.Namespace] = append(s.services[o.Namespace], o)
		case *v1.PersistentVolume:
			s.volumes = append(s.volumes, o)
		}
	}
	return s
}

// WithRefused returns the same set, which knows which objects can't be used as their
// manifests have them, and where these manifests are: whoever misses one of them is told.
func (s *Set) WithRefused(origins map[Key]string) *Set {
	next := *s
	next.refused = maps.Clone(origins)
	return &next
}

// List returns all objects, sorted by kind, namespace and name. It is read-only.
func (s *Set) List() []*Desired { return s.list }

// Get returns the object of this name, or nil.
func (s *Set) Get(k Key) *Desired { return s.byKey[k] }

// Equal reports whether two sets hold the very same objects, and miss the same.
func (s *Set) Equal(other *Set) bool {
	return s == other || s.synced == other.synced && slices.Equal(s.list, other.list) && maps.Equal(s.refused, other.refused)
}

// ConfigMap returns a ConfigMap. The error of one that isn't there fits
// k8s.io/apimachinery/pkg/api/errors.IsNotFound; it is ErrReading as long as a manifest
// that wasn't read yet may define it. So it is for the other kinds.
func (s *Set) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return lookUp[*v1.ConfigMap](s, Key{ConfigMap, namespace, name})
}

// Secret returns a Secret, all of its values in Data.
func (s *Set) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return lookUp[*v1.Secret](s, Key{Secret, namespace, name})
}

// ServiceAccount returns a ServiceAccount.
func (s *Set) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return lookUp[*v1.ServiceAccount](s, Key{ServiceAccount, namespace, name})
}

// RuntimeClass returns a RuntimeClass.
func (s *Set) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return lookUp[*nodev1.RuntimeClass](s, Key{Kind: RuntimeClass, Name: name})
}

// Services returns the services of a namespace, sorted by name, in a slice that is
// read-only. They are those that are known: a source that can't be reached must not hold pods of
// others which most likely have nothing to do with its services. What one source
// defines becomes known at once, with its pods.
func (s *Set) Services(_ context.Context, namespace string) ([]*v1.Service, error) {
	return s.services[namespace], nil
}

// PersistentVolumeClaim returns a PersistentVolumeClaim.
func (s *Set) PersistentVolumeClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return lookUp[*v1.PersistentVolumeClaim](s, Key{PersistentVolumeClaim, namespace, name})
}

// PersistentVolume returns a PersistentVolume.
func (s *Set) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return lookUp[*v1.PersistentVolume](s, Key{Kind: PersistentVolume, Name: name})
}

// PersistentVolumes returns all PersistentVolumes, sorted by name, in a slice that is
// read-only. The error is ErrReading until every source of manifests has reported: who takes
// the best of them, or gives up on one, has to know them all.
func (s *Set) PersistentVolumes(context.Context) ([]*v1.PersistentVolume, error) {
	if !s.synced {
		return nil, fmt.Errorf("persistentvolumes aren't all known yet: %w", ErrReading)
	}
	return s.volumes, nil
}

func lookUp[T Object](s *Set, k Key) (T, error) {
	if d := s.byKey[k]; d != nil {
		if o, ok := d.object.(T); ok {
			return o, nil
		}
	}
	var none T
	if !s.synced {
		return none, &reading{k}
	}
	return none, &notFound{k, s.refused[k]}
}
