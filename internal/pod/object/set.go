package object

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Set contains all objects that manifests define at one time. It is immutable, and so are the objects that it returns.
// To find out whether objects changed, compare the pointers of two sets: desired.Set holds the same *Set until an
// object or Synced changes.
type Set struct {
	list     []*Desired
	byKey    map[Key]*Desired
	services map[string][]*v1.Service
	volumes  []*v1.PersistentVolume
	// refused maps each object that can't be used to the manifest that defines it.
	refused map[Key]string
	synced  bool
}

// NewSet returns the set of these objects; their keys must be unique. synced is true once every source of manifests
// has reported: only then does the set report absent objects as missing. An API server isn't such a source.
func NewSet(list []*Desired, synced bool) *Set {
	s := &Set{
		list:     slices.Clone(list),
		byKey:    make(map[Key]*Desired, len(list)),
		services: map[string][]*v1.Service{},
		synced:   synced,
	}
	slices.SortFunc(s.list, func(a, b *Desired) int {
		return cmp.Or(cmp.Compare(a.key.Kind, b.key.Kind), cmp.Compare(a.key.Namespace, b.key.Namespace),
			cmp.Compare(a.key.Name, b.key.Name))
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

// WithRefused returns a copy of the set that also has the objects that can't be used because of mistakes. origins maps
// these objects to the paths or URLs of the manifests that define them. The error for such an object names the path or
// URL.
func (s *Set) WithRefused(origins map[Key]string) *Set {
	next := *s
	next.refused = maps.Clone(origins)
	return &next
}

// List returns all objects, sorted by kind, namespace and name. The slice is read-only.
func (s *Set) List() []*Desired { return s.list }

// Get returns the object with this key, or nil.
func (s *Set) Get(k Key) *Desired { return s.byKey[k] }

// Equal reports whether two sets contain the same objects, by pointer, and the same refused objects.
func (s *Set) Equal(other *Set) bool {
	return s == other || s.synced == other.synced && slices.Equal(s.list, other.list) &&
		maps.Equal(s.refused, other.refused)
}

// Changed returns the objects that differ from those in the previous set (before), so that the pods that use them
// have to be checked again. These are the objects that were added, changed or removed and, for some kinds, objects
// that depend on them. The zero object stands for any object.
func (s *Set) Changed(before *Set) []pod.Object {
	switch {
	case s == before:
		return nil
	case before == nil || s.synced != before.synced:
		return []pod.Object{{}}
	}
	changed := map[pod.Object]struct{}{}
	add := func(k Key) {
		changed[k.Object()] = struct{}{}
		switch k.Kind {
		case PersistentVolume: // a claim waits for any volume that fits
			changed[pod.Object{Kind: string(PersistentVolumeClaim)}] = struct{}{}
		case ServiceAccount: // the ServiceAccount lists the pull secrets of its pods
			changed[pod.Object{Kind: string(Secret), Namespace: k.Namespace}] = struct{}{}
		}
	}
	for k, d := range s.byKey {
		if old := before.byKey[k]; old == nil || old.object != d.object {
			add(k)
		}
	}
	for k := range before.byKey {
		if s.byKey[k] == nil {
			add(k)
		}
	}
	for _, both := range [][2]map[Key]string{{s.refused, before.refused}, {before.refused, s.refused}} {
		for k, origin := range both[0] {
			if other, ok := both[1][k]; !ok || other != origin {
				add(k)
			}
		}
	}
	return slices.Collect(maps.Keys(changed))
}
