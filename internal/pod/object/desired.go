package object

import "github.com/deckhand-node/deckhand/internal/pod"

// Desired is one object that a source of manifests defines. It is immutable, and so
// is the object in it.
type Desired struct {
	// Source and Origin say who defines it: Origin is a path or a URL.
	Source pod.Source
	Origin string
	// Stale is empty while the object comes from the newest text of the manifest. Otherwise it tells people why an
	// older, good version is kept.
	Stale string

	key Key
	// object isn't exported, so that nothing that prints or encodes a Desired
	// comes to a Secret's values.
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

// Key is the object's name.
func (d *Desired) Key() Key { return d.key }

// Object is the object itself, read-only.
func (d *Desired) Object() Object { return d.object }

// WithStale returns the same object, kept for another reason.
func (d *Desired) WithStale(why string) *Desired {
	next := *d
	next.Stale = why
	return &next
}

// String is the object's name.
func (d *Desired) String() string { return d.key.String() }
