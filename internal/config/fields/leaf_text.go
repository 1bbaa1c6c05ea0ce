package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// isZero reports whether v is unset or a zero value ("0s", "", {}), which tools that print every field write. A
// non-nil pointer isn't zero, even if its target is.
func isZero(v reflect.Value) bool {
	if q, ok := v.Interface().(resource.QuantityValue); ok {
		return q.IsZero()
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			// Fields that aren't in the JSON only record the notation in which a user wrote the value.
			if v.Type().Field(i).Tag.Get("json") != "-" && !isZero(v.Field(i)) {
				return false
			}
		}
		return true
	default:
		return v.IsZero()
	}
}

// valueText formats a value on one line: "true", "2m", "pods, kube-reserved", "memory.available: 100Mi". It is empty
// for an unset field, and for an empty string, list or map.
func valueText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case metav1.Duration:
		return duration(x.Duration)
	case logsapi.TimeOrMetaDuration:
		return duration(x.Duration.Duration)
	case resource.QuantityValue:
		return x.String()
	case resource.Quantity:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return valueText(v.Elem())
	case reflect.Map:
		var parts []string
		for _, k := range v.MapKeys() {
			parts = append(parts, k.String()+": "+valueText(v.MapIndex(k)))
		}
		slices.Sort(parts)
		return strings.Join(parts, ", ")
	case reflect.Slice:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, valueText(v.Index(i)))
		}
		return strings.Join(parts, ", ")
	default:
		return fmt.Sprint(v.Interface())
	}
}

// duration formats a duration without trailing zero units: 2m instead of Go's 2m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// kindOf describes the values of a field of type t.
func kindOf(t reflect.Type) string {
	t = pointee(t)
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return "duration"
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		return "quantity"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list of " + several(t.Elem())
	case reflect.Map:
		return "map of names to " + several(t.Elem())
	case reflect.Struct:
		return "mapping"
	default:
		return "integer"
	}
}

// several is kindOf in the plural.
func several(t reflect.Type) string {
	switch kind := kindOf(t); kind {
	case "true or false":
		return kind
	default:
		first, rest, ok := strings.Cut(kind, " of ")
		if ok {
			return first + "s of " + rest
		}
		return kind + "s"
	}
}
