package clusterobjects

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// FollowAttachments reads the VolumeAttachments of volumes again whose entries in the node's lists have changed, and
// wakes the pods that wait for them, until ctx ends. node is the node's name. The error is nil.
func (f *Finder) FollowAttachments(ctx context.Context, facts *nodefacts.Board, node string) error {
	changed, stop := facts.Watch(nodefacts.InUse | nodefacts.ReportedInUse | nodefacts.VolumesAttached)
	defer stop()
	for before := (&nodefacts.Facts{}); ; {
		now := facts.Now() // includes changes from before the subscription
		for _, name := range differing(before, now) {
			if k, ok := object.AttachmentOf(name, node); ok {
				f.readAgain(k)
			}
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// differing lists the volumes that only one of two states of the facts has in one of the node's lists.
func differing(a, b *nodefacts.Facts) (names []v1.UniqueVolumeName) {
	type entry struct{ inUse, attached bool }
	entries := func(f *nodefacts.Facts) map[v1.UniqueVolumeName]entry {
		of := map[v1.UniqueVolumeName]entry{}
		for _, name := range f.ReportedInUse { // it counts if the agent keeps it in the list
			_, ours := slices.BinarySearch(f.InUse, name)
			of[name] = entry{inUse: ours}
		}
		for _, v := range f.VolumesAttached {
			of[v.Name] = entry{of[v.Name].inUse, true}
		}
		return of
	}
	was, is := entries(a), entries(b)
	for name, e := range was {
		if is[name] != e {
			names = append(names, name)
		}
	}
	for name := range is {
		if _, both := was[name]; !both {
			names = append(names, name)
		}
	}
	return names
}

// readAgain reads an object again, if a pod uses it, and wakes the pods that wait for it. The answer to an earlier read
// isn't valid any more.
func (f *Finder) readAgain(k object.Key) {
	f.mu.Lock()
	if e := f.entries[k]; e != nil {
		e.ask()
		e.again.Wake()
	}
	f.mu.Unlock()
	f.notify(k.Object())
}
