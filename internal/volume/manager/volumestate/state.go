// Package volumestate holds the two sets that the volume manager works on: the volumes that
// pods want, and those that are mounted. It finds out what each volume of a pod is made from
// and by which plugin, whether that has changed, which pod has a ReadWriteOncePod claim, which
// volumes use a device that is brought to the node once, and makes one failure of a pod from what
// is wrong with its volumes.
//
// It knows where volumes are on disk. The layout is the kubelet's, which node tools rely on:
//
//	pods/UID/volumes/PLUGIN/NAME                   what containers see of a volume
//	pods/UID/volume-subpaths/NAME/CONTAINER/INDEX  what they see of a part of it
//	pods/UID/plugins/PLUGIN/NAME                   what the plugin has to remember of it
//
// In a plugin's name "/" is written "~". NAME is that of the pod's volume, or of the
// PersistentVolume behind it.
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

// Wanted is one volume of a pod, and who makes it. It is never changed.
type Wanted struct {
	Pod *v1.Pod
	// Objects is what the pod may see.
	Objects object.View
	Spec    volume.Spec
	Plugin  volume.Plugin
	Place   Place
	// Groups are those that the PersistentVolume is for.
	Groups []int64
	// Writable says that the volume is read-only, but another one of the pod, of the same claim, isn't.
	Writable bool
}

// Name is the pod's name for the volume. Two volumes of a pod may have the same place: those of
// the same claim.
func (w *Wanted) Name() string { return w.Spec.Volume.Name }

// Key is what operations on the volume work on.
func (w *Wanted) Key() operations.Key { return Key(w.Place) }

// Key is what operations on the volume at a place work on.
func Key(p Place) operations.Key {
	return operations.Key("pods/" + string(p.UID) + "/volumes/" + p.Plugin + "/" + p.Name)
}

// same reports whether a volume of this name is made from the same as another.
func (w *Wanted) same(other *Wanted) bool {
	return w.Plugin == other.Plugin && w.Place == other.Place && reflect.DeepEqual(w.Spec.Volume, other.Spec.Volume)
}

// Mounted is a volume that is there. It is never changed.
type Mounted struct {
	*Wanted
	volume.Mounted
	// Seen is what its content was made from when it was mounted.
	Seen Sight
}

// Desired holds the volumes that pods want.
type Desired map[types.UID]*Wish

// Wish is what one pod wants.
type Wish struct {
	Volumes []*Wanted
	// Swept says that no other volumes are left in the pod's directory.
	Swept bool
}

// Want takes in what a pod wants from now on.
func (d Desired) Want(uid types.UID, volumes []*Wanted) {
	before := d[uid]
	d[uid] = &Wish{Volumes: volumes, Swept: before != nil && before.Swept}
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

// Actual holds what is mounted, by the pods' names for it.
type Actual map[types.UID]map[string]*Mounted

// Put takes in a volume that is mounted now.
func (a Actual) Put(e *Mounted) {
	if a[e.Place.UID] == nil {
		a[e.Place.UID] = map[string]*Mounted{}
	}
	a[e.Place.UID][e.Name()] = e
}

// Of lists the volumes of a pod.
func (a Actual) Of(uid types.UID) []*Mounted { return slices.Collect(maps.Values(a[uid])) }

// Has reports whether the volume is mounted as it is wanted.
func (a Actual) Has(w *Wanted) bool {
	e := a[w.Place.UID][w.Name()]
	return e != nil && e.same(w)
}

// Holds reports whether it is still this one that is mounted.
func (a Actual) Holds(e *Mounted) bool { return a[e.Place.UID][e.Name()] == e }

// Remove takes out all that is at a place.
func (a Actual) Remove(p Place) {
	for name, e := range a[p.UID] {
		if e.Place == p {
			delete(a[p.UID], name)
		}
	}
	if len(a[p.UID]) == 0 {
		delete(a, p.UID)
	}
}

// Move takes out all that is at a place, and puts it into another set.
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

// Instances lists the volumes in order, as others look at them.
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
