// Package volumestate has the state of the volume manager: the desired volumes of pods, and the mounted ones. It
// plans each volume of a pod, detects changes of its inputs, reserves ReadWriteOncePod claims, counts the users of
// staged devices, and combines the problems of a pod's volumes into one failure.
//
// It also defines the layout on disk. This is the layout of the kubelet, on which node tools rely:
//
//	pods/UID/volumes/PLUGIN/NAME                   the volume that containers mount
//	pods/UID/volume-subpaths/NAME/CONTAINER/INDEX  the part of a volume that a container mounts
//	pods/UID/plugins/PLUGIN/NAME                   the plugin's data about the volume
//
// "/" in a plugin's name is written "~". NAME is the name of the PersistentVolume for claims, else the name of the
// volume in the pod's spec.
package volumestate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// Wanted is a desired volume of a pod, with its plugin. It is immutable.
type Wanted struct {
	Pod *v1.Pod
	// Objects are the API objects that the pod may use.
	Objects object.View
	Spec    volume.Spec
	Plugin  volume.Plugin
	Place   Place
	// Groups are the group IDs in the PersistentVolume's annotation (pv.beta.kubernetes.io/gid).
	Groups []int64
	// Writable says that the volume is read-only, but another volume of the pod with the same claim isn't.
	Writable bool
}

// Name is the name of the volume in the pod's spec. Two volumes of a pod with the same claim have the same place.
func (w *Wanted) Name() string { return w.Spec.Volume.Name }

// Key is the key of operations on the volume.
func (w *Wanted) Key() operations.Key { return Key(w.Place) }

// Key is the key of operations on the volume at this place.
func Key(p Place) operations.Key {
	return operations.Key("pods/" + string(p.UID) + "/volumes/" + p.Plugin + "/" + p.Name)
}

// same reports whether two volumes of the same name have the same source, plugin and place.
func (w *Wanted) same(other *Wanted) bool {
	return w.Plugin == other.Plugin && w.Place == other.Place && reflect.DeepEqual(w.Spec.Volume, other.Spec.Volume)
}

// Mounted is a mounted volume. It is immutable.
type Mounted struct {
	*Wanted
	volume.Mounted
	// Seen has the versions of the inputs that the content was made from when the volume was mounted.
	Seen Sight
}

// Desired maps pods to their desired volumes.
type Desired map[types.UID]*Wish

// Wish lists the desired volumes of one pod.
type Wish struct {
	Volumes []*Wanted
	// pod is the newest version of the pod that volumes were planned for.
	pod *v1.Pod
	// Swept says that volumes which the pod doesn't have any more were removed from its directory.
	Swept bool
}

// Want adds volumes that were planned for this version of the pod to its desired ones, and removes those that no
// container of the newest version uses. Of a volume that was planned for two versions, the newer plan counts.
func (d Desired) Want(p *v1.Pod, volumes []*Wanted) {
	wish := &Wish{Volumes: volumes, pod: p}
	if before := d[p.UID]; before != nil {
		newer, older := volumes, before.Volumes
		if before.pod.Generation > p.Generation {
			newer, older, wish.pod = older, newer, before.pod
		}
		wish.Volumes, wish.Swept = slices.Clone(newer), before.Swept
		for _, w := range older {
			if wish.Named(w.Name()) == nil && UsedByAny(wish.pod, w.Spec.Volume) {
				wish.Volumes = append(wish.Volumes, w)
			}
		}
	}
	d[p.UID] = wish
}

// Named returns the desired volume of this name; nil if there is none.
func (w *Wish) Named(name string) *Wanted {
	if w == nil {
		return nil
	}
	i := slices.IndexFunc(w.Volumes, func(v *Wanted) bool { return v.Name() == name })
	if i < 0 {
		return nil
	}
	return w.Volumes[i]
}

// Count counts volumes by plugin.
func (d Desired) Count() map[string]int {
	n := map[string]int{}
	for _, wish := range d {
		for _, w := range wish.Volumes {
			n[w.Plugin.Name()]++
		}
	}
	return n
}

// Actual maps pods and volume names to mounted volumes.
type Actual map[types.UID]map[string]*Mounted

// Put adds a mounted volume.
func (a Actual) Put(e *Mounted) {
	if a[e.Place.UID] == nil {
		a[e.Place.UID] = map[string]*Mounted{}
	}
	a[e.Place.UID][e.Name()] = e
}

// Of lists the volumes of a pod.
func (a Actual) Of(uid types.UID) []*Mounted { return slices.Collect(maps.Values(a[uid])) }

// Has reports whether the volume is mounted with the desired source, plugin and place.
func (a Actual) Has(w *Wanted) bool {
	e := a[w.Place.UID][w.Name()]
	return e != nil && e.same(w)
}

// Mounts reports whether the pod's volume is mounted from the source that its spec names.
func (a Actual) Mounts(uid types.UID, v *v1.Volume) bool {
	e := a[uid][v.Name]
	return e != nil && reflect.DeepEqual(e.Spec.Volume, v)
}

// Holds reports whether e is still in the set: it wasn't removed, and not replaced by a newer mount of the same
// volume.
func (a Actual) Holds(e *Mounted) bool { return a[e.Place.UID][e.Name()] == e }

// Remove removes all volumes at a place.
func (a Actual) Remove(p Place) {
	maps.DeleteFunc(a[p.UID], func(_ string, e *Mounted) bool { return e.Place == p })
	if len(a[p.UID]) == 0 {
		delete(a, p.UID)
	}
}

// Move moves all volumes at a place to another set.
func (a Actual) Move(p Place, to Actual) {
	for _, e := range a.Of(p.UID) {
		if e.Place == p {
			to.Put(e)
		}
	}
	a.Remove(p)
}

// Count counts volumes by plugin.
func (a Actual) Count() map[string]int {
	n := map[string]int{}
	for _, all := range a {
		for _, e := range all {
			n[e.Plugin.Name()]++
		}
	}
	return n
}

// All lists the volumes of all pods, in no order.
func (a Actual) All() []*Mounted {
	var list []*Mounted
	for _, all := range a {
		for _, e := range all {
			list = append(list, e)
		}
	}
	return list
}

// Instances lists the volumes for readers outside of the manager, sorted by the pods' UIDs and the volumes' names.
func (a Actual) Instances(l Layout) []volume.Instance {
	all := a.All()
	list := make([]volume.Instance, len(all))
	for i, e := range all {
		list[i] = volume.Instance{Pod: e.Pod, Spec: e.Spec, Plugin: e.Plugin.Name(), Place: l.Place(e.Place),
			Mounted: e.Mounted}
	}
	slices.SortFunc(list, func(a, b volume.Instance) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Spec.Volume.Name, b.Spec.Volume.Name))
	})
	return list
}
