package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// RestoreObject reads an object of a kind from its canonical form. Errors contain nothing of the object's content.
func (r *Reader) RestoreObject(kind object.Kind, canonical []byte) (Doc, error) {
	o := kind.New()
	if o == nil {
		return Doc{}, fmt.Errorf("a stored object is of kind %q, which this version of deckhand doesn't know", kind)
	}
	if json.Unmarshal(canonical, o) != nil { // the error may quote a value
		return Doc{}, fmt.Errorf("a stored %s can't be read", kind)
	}
	d := Doc{Number: 1, ID: ID{Kind: kind}}
	if err := r.takeObject(&d, o); err != nil {
		return Doc{}, err
	}
	return d, nil
}

// takeObject sets o, an object of d's kind, as the content of d.
func (r *Reader) takeObject(d *Doc, o object.Object) error {
	CleanObject(o)
	canonical, err := Canonical(o)
	if err != nil {
		return errors.New("it can't be written as JSON") // the cause may quote a value
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

// CompleteObject returns the object that d defines, first seen at the given time, or all its errors, one line each. d
// is a document of an object without errors.
func (r *Reader) CompleteObject(d Doc, seen time.Time) (object.Object, []string) {
	o, _ := d.object.DeepCopyObject().(object.Object) // it has the same type
	ObjectIdentity{Node: r.node, Hash: d.Hash, Seen: seen}.Apply(o)
	spec.SetObjectDefaults(o)
	if invalid := spec.ValidateObject(o); len(invalid) > 0 {
		return nil, render(d.locate(invalid))
	}
	return o, nil
}

// Frozen returns the reasons why next can't replace old: one line per edited field of an immutable object. Both objects
// are complete. next was built from d; with a zero Doc, the lines have no line numbers.
func (d Doc) Frozen(old, next object.Object) []string {
	return render(d.locate(spec.Frozen(old, next)))
}
