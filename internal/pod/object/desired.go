package object

import "github.com/deckhand-node/deckhand/internal/pod"

// Desired is one object that a source of manifests defines. It is immutable, and so
// is the object in it.
type Desired struct {
	// Source and Origin say where the object is defined: Origin is a path or a URL.
	Source pod.Source
	Origin string
	// Stale is empty while the object comes from the newest text of the manifest. Otherwise it is the reason, as
	// text for people, why an older, valid version is used.
	Stale string

	key Key
	// object isn't exported, so that printing or encoding a Desired never shows a Secret's values.
	object Object
}

// NewDesired returns an object that a source defines. The object is complete (defaults, identity), of one of Kinds, and
// read-only from now on.
func NewDesired(o Object, source pod.Source, origin string) *Desired {
	return &Desired{
		Source: source,
		Origin: origin,
		key:    Key{Kind: KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()},
		object: o,
	}
}

// Key returns the object's kind, namespace and name.
func (d *Desired) Key() Key { return d.key }

// Object returns the object itself, which is read-only.
func (d *Desired) Object() Object { return d.object }

// WithStale returns a copy with another reason for the use of an older version (Stale).
func (d *Desired) WithStale(why string) *Desired {
	next := *d
	next.Stale = why
	return &next
}

// String returns the object's kind, namespace and name, but no content.
func (d *Desired) String() string { return d.key.String() }
