package container

import (
	"maps"
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Draft holds the checkpoint as it should be (Now) and as it is on disk (Disk). Both are the same pointer once it is
// saved, and nil for a pod that needs no checkpoint.
type Draft struct{ Now, Disk *pod.Checkpoint }

// nothing is the checkpoint of a pod that needs none. It is never changed.
var nothing = &pod.Checkpoint{}

// Get returns the checkpoint as it should be; never nil. The caller must not change it.
func (d *Draft) Get() *pod.Checkpoint {
	if d.Now == nil {
		return nothing
	}
	return d.Now
}

// Saved reports whether the checkpoint on disk is the newest.
func (d *Draft) Saved() bool { return d.Now == d.Disk }

// lists returns the addresses of the lists in k that contain instance IDs.
func lists(k *pod.Checkpoint) [5]*[]string {
	return [...]*[]string{&k.PostStartDone, &k.Started, &k.Ready, &k.Renew, &k.Resizing}
}

// Change replaces the checkpoint with a changed copy.
func (d *Draft) Change(change func(*pod.Checkpoint)) {
	k := *d.Get()
	for _, ids := range lists(&k) {
		*ids = slices.Clone(*ids)
	}
	k.Failed, k.Resized, k.ResizedUnder, k.Carried = maps.Clone(k.Failed), maps.Clone(k.Resized),
		maps.Clone(k.ResizedUnder), maps.Clone(k.Carried)
	change(&k)
	d.Now = &k
}

// Forget drops the entries of instances that the runtime doesn't have any more, and the entries of Carried for
// containers with a newer instance. known has the IDs of the runtime's instances.
func (d *Draft) Forget(known map[string]bool, o *pod.Observed) {
	stale := func(id string) bool { return !known[id] }
	followed := func(name string, c pod.Carried) bool {
		inst := o.Newest(name)
		return inst != nil && inst.Attempt > c.Attempt
	}
	k := d.Get()
	moot := false
	for _, ids := range lists(k) {
		moot = moot || slices.ContainsFunc(*ids, stale)
	}
	for id := range k.Failed {
		moot = moot || stale(id)
	}
	for id := range k.Resized {
		moot = moot || stale(id)
	}
	for name, c := range k.Carried {
		moot = moot || followed(name, c)
	}
	if !moot {
		return
	}
	d.Change(func(k *pod.Checkpoint) {
		for _, ids := range lists(k) {
			*ids = slices.DeleteFunc(*ids, stale)
		}
		maps.DeleteFunc(k.Failed, func(id string, _ pod.Failed) bool { return stale(id) })
		for id := range k.Resized {
			if stale(id) {
				delete(k.Resized, id)
				delete(k.ResizedUnder, id)
			}
		}
		for name, c := range k.Carried {
			if followed(name, c) {
				delete(k.Carried, name)
			}
		}
	})
}
