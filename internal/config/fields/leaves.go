package fields

import (
	"reflect"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// leaf is a field without fields of its own: a value, a list or a map.
type leaf struct {
	// Path is the field's path in the file: "logging.verbosity".
	Path string
	// Name is the field's name in Go: "Verbosity".
	Name string
	Type reflect.Type
	// Value is the field's value in the configuration; invalid if a struct above it is nil.
	Value reflect.Value
}

// leaves returns all fields, in the order of the API type, without values.
func leaves() []leaf {
	return below(reflect.TypeFor[v1beta1.KubeletConfiguration](), reflect.Value{}, "")
}

// leavesOf returns all fields of the configuration c with their values.
func leavesOf(c *v1beta1.KubeletConfiguration) []leaf {
	v := reflect.ValueOf(c).Elem()
	return below(v.Type(), v, "")
}

// below returns the fields of the struct type t at path. v is a value of type t; an invalid v means that there is no
// value.
func below(t reflect.Type, v reflect.Value, path string) []leaf {
	there := v.IsValid()
	if !there {
		v = reflect.Zero(t)
	}
	var out []leaf
	for f := range paths.Fields(v) {
		l := leaf{Path: paths.Below(path, f.Name), Name: f.GoName, Type: f.Value.Type()}
		if there {
			l.Value = f.Value
		}
		if inner := pointee(l.Type); inner.Kind() == reflect.Struct && !paths.HasOwnForm(inner) {
			out = append(out, below(inner, reflect.Indirect(l.Value), l.Path)...)
		} else {
			out = append(out, l)
		}
	}
	return out
}

func pointee(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
