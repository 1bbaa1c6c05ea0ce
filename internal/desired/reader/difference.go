package reader

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// difference describes the first semantic difference between two API values of one type: its path, as field.Path
// writes it, and whether it was added, removed or changed. It is "" if there is none. path is the path of the values
// themselves.
func difference(a, b reflect.Value, path string) string {
	if equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		return ""
	}
	if reflect.PointerTo(a.Type()).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return path + " changed" // a quantity or a time, which users write as one value
	}
	switch a.Kind() {
	case reflect.Struct:
		return structDifference(a, b, path)
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return came(path, a.IsNil())
		}
		return difference(a.Elem(), b.Elem(), path)
	case reflect.Slice:
		return sliceDifference(a, b, path)
	case reflect.Map:
		return mapDifference(a, b, path)
	default:
		return path + " changed"
	}
}

func came(path string, added bool) string {
	if added {
		return path + " was added"
	}
	return path + " was removed"
}

func structDifference(a, b reflect.Value, path string) string {
	for i := range a.NumField() {
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		at := path
		if name != "" { // otherwise its fields are inlined
			at += "." + name
		}
		if why := difference(a.Field(i), b.Field(i), at); why != "" {
			return why
		}
	}
	return path + " changed" // none of its fields differs
}

func sliceDifference(a, b reflect.Value, path string) string {
	if a.Len() == 0 || b.Len() == 0 {
		return came(path, a.Len() == 0)
	}
	shorter := min(a.Len(), b.Len())
	for i := range shorter {
		if why := difference(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); why != "" {
			return why
		}
	}
	return came(fmt.Sprintf("%s[%d]", path, shorter), a.Len() < b.Len())
}

func mapDifference(a, b reflect.Value, path string) string {
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{a, b} {
		for _, key := range m.MapKeys() {
			keys[key.String()] = key
		}
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		before, after, at := a.MapIndex(keys[name]), b.MapIndex(keys[name]), path+"["+name+"]"
		if !before.IsValid() || !after.IsValid() {
			return came(at, !before.IsValid())
		}
		if why := difference(before, after, at); why != "" {
			return why
		}
	}
	return path + " changed" // none of its values differs
}
