package paths

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// Diff returns the sorted paths of the settings in which a and b differ. Values with the same meaning are equal: "1h"
// and "60m", "1Gi" and "1024Mi", nil and an empty list or map. Defaults must have been set in both: without defaults,
// an empty map differs from nil, because it may prevent a default.
func Diff(a, b *v1beta1.KubeletConfiguration) []string {
	var d differ
	in := settings(b)
	for i, f := range settings(a) {
		d.compare(f.Name, f.Value, in[i].Value)
	}
	slices.Sort(d.paths)
	return d.paths
}

// differ collects the paths of differences.
type differ struct{ paths []string }

func (d *differ) compare(path string, a, b reflect.Value) {
	switch {
	case HasOwnForm(a.Type()):
		if !sameForm(a, b) {
			d.paths = append(d.paths, path)
		}
	case a.Kind() == reflect.Pointer:
		d.pointers(path, a, b)
	case a.Kind() == reflect.Struct:
		in := slices.Collect(Fields(b))
		for i, f := range slices.Collect(Fields(a)) {
			d.compare(Below(path, f.Name), f.Value, in[i].Value)
		}
	case a.Kind() == reflect.Map:
		d.maps(path, a, b)
	case a.Kind() == reflect.Slice:
		if !sameList(a, b) {
			d.paths = append(d.paths, path)
		}
	case !a.Equal(b):
		d.paths = append(d.paths, path)
	}
}

func (d *differ) pointers(path string, a, b reflect.Value) {
	switch {
	case a.IsNil() && b.IsNil():
	case a.IsNil():
		d.onlyOne(path, b.Elem())
	case b.IsNil():
		d.onlyOne(path, a.Elem())
	default:
		d.compare(path, a.Elem(), b.Elem())
	}
}

func (d *differ) maps(path string, a, b reflect.Value) {
	for _, key := range a.MapKeys() {
		if in := b.MapIndex(key); in.IsValid() {
			d.compare(Of(path, key), a.MapIndex(key), in)
		} else {
			d.onlyOne(Of(path, key), a.MapIndex(key))
		}
	}
	for _, key := range b.MapKeys() {
		if !a.MapIndex(key).IsValid() {
			d.onlyOne(Of(path, key), b.MapIndex(key))
		}
	}
}

// onlyOne adds the paths of the value v at path, which only one of the configurations has: the paths of its non-zero
// settings or, if there are none, path itself.
func (d *differ) onlyOne(path string, v reflect.Value) {
	before := len(d.paths)
	d.compare(path, v, reflect.Zero(v.Type()))
	if len(d.paths) == before {
		d.paths = append(d.paths, path)
	}
}

func sameList(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	var d differ
	for i := range a.Len() {
		d.compare("", a.Index(i), b.Index(i))
	}
	return len(d.paths) == 0
}

// sameForm compares two values of a type with its own JSON form (see HasOwnForm). It compares durations and quantities
// by their meaning, and other types by their JSON.
func sameForm(a, b reflect.Value) bool {
	switch x := a.Interface().(type) {
	case metav1.Duration:
		return x == b.Interface()
	case logsapi.TimeOrMetaDuration: // its serialization format doesn't count
		return x.Duration == b.Interface().(logsapi.TimeOrMetaDuration).Duration
	case resource.Quantity:
		return x.Equal(b.Interface().(resource.Quantity))
	case resource.QuantityValue:
		return x.Equal(b.Interface().(resource.QuantityValue).Quantity)
	case metav1.Time:
		return x.Time.Equal(b.Interface().(metav1.Time).Time)
	}
	textA, errA := json.Marshal(a.Interface())
	textB, errB := json.Marshal(b.Interface())
	return errA == nil && errB == nil && bytes.Equal(textA, textB)
}
