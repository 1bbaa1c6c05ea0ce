package lastgood

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/desired/checkpoint"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/static"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// entry is one good pod or other object. It is never changed.
type entry struct {
	reader.ID
	origin    string
	document  int
	hash      string
	canonical []byte
	since     time.Time
	// version says which pod, or which object: of that, only Seen counts.
	version static.Version
	// One of these is set.
	desired *pod.Desired
	object  *objects.Desired
}

// stale is why it isn't up to date; empty for up to date.
func (e *entry) stale() string {
	if e.object != nil {
		return e.object.Stale
	}
	return e.desired.Stale
}

// asStale returns the entry with why it isn't up to date; empty for up to date.
// An entry that needs no change is returned as it is, with its pointers.
func (e *entry) asStale(why string) *entry {
	if e.stale() == why {
		return e
	}
	next := *e
	if e.object != nil {
		next.object = e.object.WithStale(why)
		return &next
	}
	d := *e.desired
	d.Stale = why
	next.desired = &d
	return &next
}

// precedes reports whether the entry has the better right to a name than another.
func (e *entry) precedes(other *entry) bool {
	if !e.since.Equal(other.since) {
		return e.since.Before(other.since)
	}
	return e.origin < other.origin
}

// complete returns the entry with its pod or object as that of a version, or what is
// wrong with it. d is the document it is made of.
func (k *Keeper) complete(e entry, d reader.Doc, v static.Version, stale string) (*entry, []string) {
	e.version = v
	if d.Kind != "" {
		o, wrong := k.reader.CompleteObject(d, v.Seen)
		if len(wrong) > 0 {
			return nil, wrong
		}
		e.object = objects.NewDesired(o, k.reader.Source(), e.origin)
		e.object.Stale = stale
		return &e, nil
	}
	p, wrong := k.reader.Complete(d, v)
	if len(wrong) > 0 {
		return nil, wrong
	}
	e.desired = &pod.Desired{Pod: p, Source: k.reader.Source(), Origin: e.origin, Stale: stale, Base: v.Base}
	return &e, nil
}

// first is the version of something new.
func first(d reader.Doc, seen time.Time) static.Version {
	if d.Kind != "" {
		return static.Version{Seen: seen}
	}
	return static.First(d.Hash, seen)
}

// read reads back the document the entry was made of.
func (k *Keeper) read(kind objects.Kind, canonical []byte) (reader.Doc, error) {
	if kind != "" {
		return k.reader.RestoreObject(kind, canonical)
	}
	return k.reader.Restore(canonical)
}

// record is the entry as it is kept on disk, on the node of this name.
func (e *entry) record(node string) checkpoint.Record {
	return checkpoint.Record{
		Origin:     e.origin,
		Document:   e.document,
		Kind:       e.Kind,
		Content:    e.canonical,
		Since:      e.since,
		Seen:       e.version.Seen,
		Base:       e.version.Base,
		Generation: e.version.Generation,
		Node:       node,
		Stale:      e.stale(),
	}
}
