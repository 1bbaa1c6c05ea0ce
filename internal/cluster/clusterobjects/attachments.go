package clusterobjects

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// attachedVolume is the entry of a volume in the node's lists.
type attachedVolume struct{ inUse, attached bool }

// FollowAttachments reads a volume's VolumeAttachment again when the volume's entry in the node's lists has changed,
// and wakes the pods that wait for it, until ctx ends. node is the node's name. The error is nil.
func (f *Finder) FollowAttachments(ctx context.Context, facts *nodefacts.Board, node string) error {
	changed, stop := facts.Watch(nodefacts.InUse | nodefacts.ReportedInUse | nodefacts.VolumesAttached)
	defer stop()
	for before := volumesOf(&nodefacts.Facts{}); ; {
		now := volumesOf(facts.Now()) // includes changes from before the subscription
		f.setAttached(differing(before, now), node)
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// volumesOf returns the node's lists by the names of the volumes.
func volumesOf(f *nodefacts.Facts) map[v1.UniqueVolumeName]attachedVolume {
	of := map[v1.UniqueVolumeName]attachedVolume{}
	for _, name := range f.ReportedInUse { // it counts if the agent keeps it in the list
		_, ours := slices.BinarySearch(f.InUse, name)
		of[name] = attachedVolume{inUse: ours}
	}
	for _, v := range f.VolumesAttached {
		of[v.Name] = attachedVolume{of[v.Name].inUse, true}
	}
	return of
}

// differing returns the entries that the second of two states of the lists has changed; zero for a volume that is gone.
func differing(was, is map[v1.UniqueVolumeName]attachedVolume) map[v1.UniqueVolumeName]attachedVolume {
	changed := map[v1.UniqueVolumeName]attachedVolume{}
	for name, v := range is {
		if before, both := was[name]; !both || before != v {
			changed[name] = v
		}
	}
	for name := range was {
		if _, both := is[name]; !both {
			changed[name] = attachedVolume{}
		}
	}
	return changed
}

// setAttached processes changes of the node's lists. Earlier answers for these volumes aren't valid any more: they are
// read again if pods use them.
func (f *Finder) setAttached(changed map[v1.UniqueVolumeName]attachedVolume, node string) {
	f.mu.Lock()
	if f.attached == nil {
		f.attached = map[object.Key]attachedVolume{}
	}
	var keys []object.Key
	for name, v := range changed {
		k, ok := object.AttachmentOf(name, node)
		if !ok {
			continue
		}
		if f.attached[k] = v; v == (attachedVolume{}) {
			delete(f.attached, k)
		}
		e := f.entries[k]
		if e != nil {
			f.ask(e)
		}
		if e == nil || v != (attachedVolume{inUse: true, attached: true}) {
			keys = append(keys, k)
		} // else the answer wakes the pods: before it, all that they could do is wait
	}
	f.mu.Unlock()
	for _, k := range keys {
		f.notify(k.Object())
	}
}

// awaitAttached waits until a VolumeAttachment is to be read, or ctx ends: when the node's object lists the volume as
// attached, as it soon does, so that one read is enough. If that takes longer, the object may say why. A volume that
// isn't in use needs no answer. polled says that the object was read before, and a wait has passed.
func (f *Finder) awaitAttached(ctx context.Context, e *entry, polled bool) {
	if e.key.Kind != object.VolumeAttachment {
		return
	}
	late := time.After(pollDelay(e.key.Kind, 0))
	for ctx.Err() == nil {
		f.mu.Lock()
		v, following := f.attached[e.key], f.attached != nil
		e.deferred = following && !(v.inUse && (v.attached || polled))
		deferred := e.deferred
		f.mu.Unlock()
		if !deferred {
			return
		}
		select {
		case <-ctx.Done():
		case <-late:
			polled = true
		case <-e.again:
		}
	}
}
