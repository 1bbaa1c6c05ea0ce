// Package leaves knows the shape of v1beta1.KubeletConfiguration: which fields there
// are, of which types, and how their values read as text.
package leaves

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Leaf is a field that has no fields of its own: a value, a list or a map.
type Leaf struct {
	// Path is the field by its names in the file: "logging.verbosity".
	Path string
	// Name is the field's name in Go: "Verbosity".
	Name string
	Type reflect.Type

	index [][]int // of each struct on the way
}

// All lists every field, in the order of the API type.
func All() []Leaf { return below(reflect.TypeFor[v1beta1.KubeletConfiguration](), "", nil) }

func below(t reflect.Type, path string, index [][]int) []Leaf {
	var out []Leaf
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(index[:len(index):len(index)], f.Index)
		switch inner := pointee(f.Type); {
		case f.Anonymous && name == "":
			out = append(out, below(inner, path, at)...)
		case inner.Kind() == reflect.Struct && !hasOwnForm(inner):
			out = append(out, below(inner, path+name+".", at)...)
		default:
			out = append(out, Leaf{Path: path + name, Name: f.Name, Type: f.Type, index: at})
		}
	}
	return out
}

// In is the field's value in c; false if a struct above it isn't there.
func (l Leaf) In(c *v1beta1.KubeletConfiguration) (reflect.Value, bool) {
	v := reflect.ValueOf(c).Elem()
	for _, i := range l.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}, false
			}
			v = v.Elem()
		}
		v = v.FieldByIndex(i)
	}
	return v, true
}

// hasOwnForm tells types that read their own JSON (durations, quantities).
func hasOwnForm(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func pointee(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
