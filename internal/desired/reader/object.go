package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired/static"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/objects/objectspec"
)

// RestoreObject reads an object of some kind back from its canonical form. No error
// holds anything of the object's content.
func (r *Reader) RestoreObject(kind objects.Kind, canonical []byte) (Doc, error) {
	o := kind.New()
	if o == nil {
		return Doc{}, fmt.Errorf("a stored object is of kind %q, which this version of deckhand doesn't know", kind)
	}
	if json.Unmarshal(canonical, o) != nil { // whose error may quote a value
		return Doc{}, fmt.Errorf("a stored %s can't be read", kind)
	}
	d := restored()
	if err := r.takeObject(&d, o); err != nil {
		return Doc{}, err
	}
	return d, nil
}

// takeObject makes o the object that d is about.
func (r *Reader) takeObject(d *Doc, o objects.Object) error {
	static.CleanObject(o)
	canonical, err := static.Canonical(o)
	if err != nil {
		return errors.New("it can't be written as JSON") // the reason may quote a value
	}
	d.Kind = objects.KindOf(o)
	if name := o.GetName(); name != "" {
		d.Name = name
		if d.Kind.Namespaced() {
			d.Name = o.GetNamespace() + "/" + name
		}
	}
	d.object, d.Canonical, d.Hash = o, canonical, static.Hash(canonical, r.node)
	return nil
}

// CompleteObject returns the object that d defines, first seen at the given time, or
// everything that is wrong with it, one line each. It is for documents of objects without errors.
func (r *Reader) CompleteObject(d Doc, seen time.Time) (objects.Object, []string) {
	o, ok := d.object.DeepCopyObject().(objects.Object)
	if !ok {
		return nil, []string{"it can't be copied"} // which can't be: it is of the same type
	}
	static.ObjectIdentity{Node: r.node, Hash: d.Hash, Seen: seen}.Apply(o)
	objectspec.SetDefaults(o)
	if invalid := objectspec.Validate(o); len(invalid) > 0 {
		return nil, render(d.locate(invalid))
	}
	return o, nil
}

// Frozen returns what stands in the way of making old, a complete object, what d says:
// one line for each field of an immutable object that is edited.
func (r *Reader) Frozen(old objects.Object, d Doc) []string {
	next, wrong := r.CompleteObject(d, time.Time{})
	if len(wrong) > 0 {
		return wrong
	}
	return render(d.locate(objectspec.Frozen(old, next)))
}
