package manifeststore

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// entry is one good pod or other object. It is never changed.
type entry struct {
	reader.ID
	origin   string
	document int
	hash     string
	// uid is what a pod that is made of this text gets.
	uid       string
	canonical []byte
	since     time.Time
	// restored says that it is from the agent before, and that nobody has read it since.
	restored bool
	// version says which pod, or which object: of that, only Seen counts.
	version reader.Version
	// One of these is set.
	desired *pod.Desired
	object  *object.Desired
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
func (k *Keeper) complete(e entry, d reader.Doc, v reader.Version) (_ *entry, wrong []string) {
	e.version = v
	e.desired, e.object, wrong = k.reader.Desire(d, v, e.origin)
	return &e, wrong
}

// as returns the entry with its pod or object as that of another version.
func (k *Keeper) as(e *entry, v reader.Version) *entry {
	next := *e
	next.version = v
	if e.object != nil {
		o, _ := e.object.Object().DeepCopyObject().(object.Object) // it is of the same type
		reader.ObjectIdentity{Node: k.reader.Node(), Hash: e.hash, Seen: v.Seen}.Apply(o)
		next.object = object.NewDesired(o, k.reader.Source(), e.origin)
		next.object.Stale = e.object.Stale
		return &next
	}
	d := *e.desired
	d.Pod, d.Base = v.Renew(d.Pod, e.version, e.hash), v.Base
	next.desired = &d
	return &next
}

// entry is what an origin defines with d, without its pod or object.
func (k *Keeper) entry(d reader.Doc, origin string) entry {
	e := entry{ID: d.ID, origin: origin, document: d.Number, hash: d.Hash, canonical: d.Canonical}
	if d.Kind == "" {
		e.uid = k.reader.UID(d, origin)
	}
	return e
}

// first is the entry's version if it is something new.
func (e *entry) first(seen time.Time) reader.Version {
	if e.Kind != "" {
		return reader.Version{Seen: seen}
	}
	return reader.First(e.uid, seen)
}

// record is the entry as it is kept on disk, on the node of this name, read at this place.
func (e *entry) record(node, place string) Record {
	return Record{
		Origin:     e.origin,
		Document:   e.document,
		Kind:       e.Kind,
		Content:    e.canonical,
		Since:      e.since,
		Seen:       e.version.Seen,
		Base:       e.version.Base,
		Generation: e.version.Generation,
		Node:       node,
		Place:      place,
		Stale:      e.stale(),
	}
}
