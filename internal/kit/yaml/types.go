package yaml

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// form is the kind of values that the Go type of a field allows in a document.
type form int

const (
	scalarForm form = iota
	structForm
	mapForm
	listForm
	bytesForm  // base64 text
	customForm // only the JSON decoder of the type (a quantity, a time) can validate a value
	anyForm    // any value
	nodeForm   // the node as it is, unread
)

// typeInfo describes a type. It is immutable.
type typeInfo struct {
	form form
	// fields maps JSON names to a struct's fields, including those of embedded structs; names are in the order of
	// declaration.
	fields map[string][]int
	names  []string
}

var types sync.Map // of reflect.Type to *typeInfo

func infoOf(t reflect.Type) *typeInfo {
	if known, ok := types.Load(t); ok {
		return known.(*typeInfo)
	}
	info := &typeInfo{}
	switch {
	case t == reflect.TypeFor[Node]():
		info.form = nodeForm
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		info.form = customForm
	case t == reflect.TypeFor[[]byte]():
		info.form = bytesForm
	case t.Kind() == reflect.Struct:
		info.form, info.fields = structForm, map[string][]int{}
		info.addFields(t, nil)
	case t.Kind() == reflect.Map:
		info.form = mapForm
	case t.Kind() == reflect.Slice:
		info.form = listForm
	case t.Kind() == reflect.Interface:
		info.form = anyForm
	}
	known, _ := types.LoadOrStore(t, info)
	return known.(*typeInfo)
}

func (info *typeInfo) addFields(t reflect.Type, above []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(above), i)
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			info.addFields(f.Type, index)
		case name != "":
			info.fields[name] = index
			info.names = append(info.names, name)
		}
	}
}

// suggest returns the field a misspelt name most likely means, or "".
func (info *typeInfo) suggest(name string) string {
	return suggest.Of(name, slices.Values(info.names), min(2, (len(name)-1)/2)) // fewer than half of the letters
}
