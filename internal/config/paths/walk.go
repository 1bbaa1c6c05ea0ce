// Package paths sees a KubeletConfiguration as settings, each with a path such as
// "logging.verbosity" or "evictionHard[memory.available]": what there is, in what
// two configurations differ, and how they are shown to a person. It knows the
// type by reflection alone, so that new fields of v1beta1 come by themselves. It
// is pure.
//
// A setting, or leaf, is a scalar, a duration or quantity, a list as a whole, and
// each key of a map. apiVersion and kind say what a document is; they are no
// settings.
package paths

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Field is a field of a struct as JSON and YAML name it.
type Field struct {
	Name string
	// GoName is its name in Go.
	GoName string
	// OmitEmpty says that JSON leaves the field out when it is empty.
	OmitEmpty bool
	// Value can be set if the struct can.
	Value reflect.Value
}

// Fields yields the fields of the struct v in the order they are declared. Those
// of an embedded struct stand in its place.
func Fields(v reflect.Value) iter.Seq[Field] {
	return func(yield func(Field) bool) { fields(v, yield) }
}

func fields(v reflect.Value, yield func(Field) bool) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if !fields(v.Field(i), yield) {
				return false
			}
		case f.IsExported() && name != "" && name != "-":
			omit := slices.Contains(strings.Split(options, ","), "omitempty")
			if !yield(Field{Name: name, GoName: f.Name, OmitEmpty: omit, Value: v.Field(i)}) {
				return false
			}
		}
	}
	return true
}

// HasOwnForm reports whether values of type t write themselves as one value: durations,
// quantities, times.
func HasOwnForm(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Below is the path of a field of the struct at path; at the top path is "".
func Below(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// Of is the path of a map's key, or of a list's element.
func Of(path string, key any) string {
	return fmt.Sprintf("%s[%v]", path, key)
}

// Leaves yields every setting of c with its value, in the order of declaration;
// the keys of a map are sorted. The value is nil for what isn't set: a nil
// pointer, list or map. A map without keys is a leaf itself.
func Leaves(c *v1beta1.KubeletConfiguration) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, f := range settings(c) {
			if !leaves(f.Name, f.Value, yield) {
				return
			}
		}
	}
}

// settings are the fields of c without those that only name its type.
func settings(c *v1beta1.KubeletConfiguration) []Field {
	all := slices.Collect(Fields(reflect.ValueOf(c).Elem()))
	return slices.DeleteFunc(all, func(f Field) bool { return f.Name == "apiVersion" || f.Name == "kind" })
}

func leaves(path string, v reflect.Value, yield func(string, any) bool) bool {
	switch {
	case HasOwnForm(v.Type()):
		return yield(path, v.Interface())
	case unset(v):
		return yield(path, nil)
	case v.Kind() == reflect.Pointer:
		return leaves(path, v.Elem(), yield)
	case v.Kind() == reflect.Struct:
		for f := range Fields(v) {
			if !leaves(Below(path, f.Name), f.Value, yield) {
				return false
			}
		}
		return true
	case v.Kind() == reflect.Map && v.Len() > 0:
		for _, key := range sortedKeys(v) {
			if !leaves(Of(path, key), v.MapIndex(key), yield) {
				return false
			}
		}
		return true
	}
	return yield(path, v.Interface())
}

// unset reports whether v is a nil pointer, list or map.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return false
}

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int {
		return strings.Compare(a.String(), b.String())
	})
}
