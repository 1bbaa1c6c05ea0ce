// Package paths treats a KubeletConfiguration as settings, each with a path such as "logging.verbosity" or
// "evictionHard[memory.available]". It lists them, compares configurations, and formats them for users. It uses
// reflection, so that it supports new fields of v1beta1 without changes. It is pure.
//
// A setting, or leaf, is a scalar, a duration or quantity, a list as a whole, or a key of a map. apiVersion and kind
// aren't settings.
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

// Field is a field of a struct, with its name in JSON and YAML.
type Field struct {
	Name string
	// GoName is the field's name in Go.
	GoName string
	// OmitEmpty means that JSON omits the field if it is empty.
	OmitEmpty bool
	// Value is settable if the struct is.
	Value reflect.Value
}

// Fields yields the fields of the struct v in the order of declaration. It yields the fields of an embedded struct in
// that struct's place.
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

// HasOwnForm reports whether type t implements its own JSON encoding, as durations, quantities and times do.
func HasOwnForm(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Below returns the path of a field of the struct at path; path is "" at the top.
func Below(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// Of returns the path of a map's key, or of a list's element.
func Of(path string, key any) string {
	return fmt.Sprintf("%s[%v]", path, key)
}

// Leaves yields every setting of c with its value, in the order of declaration; the keys of a map are sorted. The
// value is nil for a nil pointer, list or map. An empty map is a leaf itself.
func Leaves(c *v1beta1.KubeletConfiguration) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, f := range settings(c) {
			if !leaves(f.Name, f.Value, yield) {
				return
			}
		}
	}
}

// settings returns the fields of c except apiVersion and kind.
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
