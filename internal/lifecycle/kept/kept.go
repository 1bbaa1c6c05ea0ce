// Package kept changes what has to outlive the agent of one pod.
package kept

import (
	"maps"
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Book holds what is kept, and what of it is on disk: the same pointer once it is.
// Both are nil for a pod of which nothing has to be kept.
type Book struct{ Now, Disk *pod.Kept }

// nothing is what is kept of a pod of which nothing is. It is never changed.
var nothing = &pod.Kept{}

// Get returns what is kept, never nil. It mustn't be changed.
func (b *Book) Get() *pod.Kept {
	if b.Now == nil {
		return nothing
	}
	return b.Now
}

// Saved reports whether everything that has to outlive the agent is on disk.
func (b *Book) Saved() bool { return b.Now == b.Disk }

// lists are the lists of instance IDs in k.
func lists(k *pod.Kept) [5]*[]string {
	return [...]*[]string{&k.Hooked, &k.Started, &k.Ready, &k.Renew, &k.Resizing}
}

// Change replaces what is kept by a changed copy.
func (b *Book) Change(change func(*pod.Kept)) {
	k := *b.Get()
	for _, ids := range lists(&k) {
		*ids = slices.Clone(*ids)
	}
	k.Resized, k.ResizedUnder, k.Carried = maps.Clone(k.Resized), maps.Clone(k.ResizedUnder), maps.Clone(k.Carried)
	change(&k)
	b.Now = &k
}

// Forget drops what was kept of instances that aren't known any more, and what
// containers went on from once they have an instance again.
func (b *Book) Forget(known map[string]bool, o *pod.Observed) {
	stale := func(id string) bool { return !known[id] }
	followed := func(name string, c pod.Carried) bool {
		inst := o.Newest(name)
		return inst != nil && inst.Attempt > c.Attempt
	}
	k := b.Get()
	moot := false
	for _, ids := range lists(k) {
		moot = moot || slices.ContainsFunc(*ids, stale)
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
	b.Change(func(k *pod.Kept) {
		for _, ids := range lists(k) {
			*ids = slices.DeleteFunc(*ids, stale)
		}
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
