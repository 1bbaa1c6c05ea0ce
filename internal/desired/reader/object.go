package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// RestoreObject reads an object of some kind back from its canonical form. No error
// holds anything of the object's content.
func (r *Reader) RestoreObject(kind object.Kind, canonical []byte) (Doc, error) {
	o := kind.New()
	if o == nil {
		return Doc{}, fmt.Errorf("a stored object is of kind %q, which this version of deckhand doesn't know", kind)
	}
	if json.Unmarshal(canonical, o) != nil { // whose error may quote a value
		return Doc{}, fmt.Errorf("a stored %s can't be read", kind)
	}
	d := Doc{Number: 1, ID: ID{Kind: kind}}
	if err := r.takeObject(&d, o); err != nil {
		return Doc{}, err
	}
	return d, nil
}

// takeObject makes o, of d's kind, the object that d is about.
func (r *Reader) takeObject(d *Doc, o object.Object) error {
	CleanObject(o)
	canonical, err := Canonical(o)
	if err != nil {
		return errors.New("it can't be written as JSON") // the reason may quote a value
	}
	if name := o.GetName(); name != "" {
		d.Name = name
		if d.Kind.Namespaced() {
			d.Name = o.GetNamespace() + "/" + name
		}
	}
	d.object, d.Canonical, d.Hash = o, canonical, Hash(canonical, r.node)
	return nil
}

// CompleteObject returns the object that d defines, first seen at the given time, or
// everything that is wrong with it, one line each. It is for documents of objects without errors.
func (r *Reader) CompleteObject(d Doc, seen time.Time) (object.Object, []string) {
	o, _ := d.object.DeepCopyObject().(object.Object) // it is of the same type
	ObjectIdentity{Node: r.node, Hash: d.Hash, Seen: seen}.Apply(o)
	spec.SetObjectDefaults(o)
	if invalid := spec.ValidateObject(o); len(invalid) > 0 {
		return nil, render(d.locate(invalid))
	}
	return o, nil
}

// Frozen returns what stands in the way of replacing old by next, both complete, which was made of d
// (the zero Doc for one without lines): one line for each field of an immutable object that is edited.
func (d Doc) Frozen(old, next object.Object) []string {
	return render(d.locate(spec.Frozen(old, next)))
}
