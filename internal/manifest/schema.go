package manifest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/nearest"
	"github.com/deckhand-node/deckhand/internal/objects"
)

// schema is what the Go type of a field allows in a manifest.
type schema struct {
	kind reflect.Kind
	// fields of a struct by JSON name, those of inlined structs included.
	fields map[string]*schema
	// elem is the schema of a list's or map's values.
	elem *schema
	// bytes is set for bytes, which are base64 text in a manifest.
	bytes bool
	// custom is set for a type with its own JSON form (quantities, times,
	// number-or-name); only the type itself can judge a value.
	custom reflect.Type
}

// schemas are derived from the API types of the kinds, once, and never changed.
var schemas = sync.OnceValue(func() map[string]*schema {
	done := map[reflect.Type]*schema{}
	of := map[string]*schema{kindPod: schemaOf(reflect.TypeFor[v1.Pod](), done)}
	for _, kind := range objects.Kinds() {
		of[string(kind)] = schemaOf(reflect.TypeOf(kind.New()), done)
	}
	return of
})

// schemaOf builds the schema of t. done holds those begun, so that a type used
// twice is shared and one that contains itself ends.
func schemaOf(t reflect.Type, done map[reflect.Type]*schema) *schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := done[t]; ok {
		return s
	}
	s := &schema{kind: t.Kind()}
	done[t] = s
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		s.custom = t
		return s
	}
	s.bytes = t == reflect.TypeFor[[]byte]()
	switch t.Kind() {
	case reflect.Struct:
		s.fields = map[string]*schema{}
		addFields(s.fields, t, done)
	case reflect.Slice, reflect.Map:
		s.elem = schemaOf(t.Elem(), done)
	}
	return s
}

func addFields(fields map[string]*schema, t reflect.Type, done map[reflect.Type]*schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			addFields(fields, f.Type, done)
		case name != "":
			fields[name] = schemaOf(f.Type, done)
		}
	}
}

// suggest returns the field a misspelt name most likely means, or "".
func (s *schema) suggest(name string) string {
	fields := slices.Values(slices.Sorted(maps.Keys(s.fields)))
	return nearest.Of(name, fields, min(2, (len(name)-1)/2)) // less than half of it may be wrong
}
