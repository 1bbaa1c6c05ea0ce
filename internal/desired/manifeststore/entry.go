package manifeststore

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// entry is a good pod or other object. It is never changed.
type entry struct {
	reader.ID
	origin   string
	document int
	hash     string
	// uid is the UID that a new pod from this text would get.
	uid       string
	canonical []byte
	since     time.Time
	// restored says that the entry is from an earlier agent and its text hasn't been read since.
	restored bool
	// version is the version of the pod or object; objects use only Seen.
	version reader.Version
	// One of desired and object is set.
	desired *pod.Desired
	object  *object.Desired
}

// stale is why the entry isn't up to date; empty if it is.
func (e *entry) stale() string {
	if e.object != nil {
		return e.object.Stale
	}
	return e.desired.Stale
}

// asStale returns the entry with the reason why it isn't up to date, empty if it is. An unchanged entry is returned
// as it is, with its pointers.
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

// precedes reports whether the entry takes precedence over another with the same name.
func (e *entry) precedes(other *entry) bool {
	if !e.since.Equal(other.since) {
		return e.since.Before(other.since)
	}
	return e.origin < other.origin
}

// complete builds the entry's pod or object in version v from d, the entry's document. It returns the complete entry,
// or the errors of the pod or object.
func (k *Keeper) complete(e entry, d reader.Doc, v reader.Version) (_ *entry, wrong []string) {
	e.version = v
	e.desired, e.object, wrong = k.reader.Desire(d, v, e.origin)
	return &e, wrong
}

// as returns the entry with its pod or object in another version.
func (k *Keeper) as(e *entry, v reader.Version) *entry {
	next := *e
	next.version = v
	if e.object != nil {
		o, _ := e.object.Object().DeepCopyObject().(object.Object) // it has the same type
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

// entry returns an entry for document d of an origin. Its pod or object isn't set yet.
func (k *Keeper) entry(d reader.Doc, origin string) entry {
	e := entry{ID: d.ID, origin: origin, document: d.Number, hash: d.Hash, canonical: d.Canonical}
	if d.Kind == "" {
		e.uid = k.reader.UID(d, origin)
	}
	return e
}

// first is the version that the entry's pod or object gets if it is new.
func (e *entry) first(seen time.Time) reader.Version {
	if e.Kind != "" {
		return reader.Version{Seen: seen}
	}
	return reader.First(e.uid, seen)
}

// record is the entry's record for the disk. node is the node's name, place the Place of the keeper.
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
