package validation_test

import (
	"encoding/json"
	"reflect"
	"strings"
)

// jsonName is a field's name in the file; empty if it is inlined.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// isLeaf reports whether t is a type whose fields aren't fields of the file.
func isLeaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// elem is what is below pointers and lists.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// leaves lists every field by its path, those of list items included.
func leaves(t reflect.Type, path string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := jsonName(f)
		switch ft := elem(f.Type); {
		case name == "-":
		case f.Anonymous && name == "":
			out = append(out, leaves(ft, path)...)
		case isLeaf(ft):
			out = append(out, path+name)
		default:
			out = append(out, leaves(ft, path+name+".")...)
		}
	}
	return out
}

// given collects the leaves of v that aren't zero.
func given(v reflect.Value, path string, into map[string]bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := jsonName(f)
		if name == "-" || v.Field(i).IsZero() {
			continue
		}
		if !f.Anonymous || name != "" {
			name += "."
		}
		values := []reflect.Value{v.Field(i)}
		for len(values) > 0 {
			value := values[0]
			values = values[1:]
			switch {
			case value.Kind() == reflect.Pointer:
				values = append(values, value.Elem())
			case value.Kind() == reflect.Slice && !isLeaf(elem(f.Type)):
				for j := range value.Len() {
					values = append(values, value.Index(j))
				}
			case isLeaf(value.Type()):
				into[path+strings.TrimSuffix(name, ".")] = true
			default:
				given(value, path+name, into)
			}
		}
	}
}
