// Package words writes Go values as words on a line and reads them back. A struct becomes `key=value` for each field
// that isn't zero, or that differs from an earlier value; lists of named elements become a line per element. It uses
// reflection with plans that are built once: a new field needs no code here.
//
// Values: a true bool is only its name; strings are bare or quoted as in Go; times are relative to a base (`+1.5s`)
// or absolute; durations as Go prints them; lists of simple values `[a,b]`; nested structs use dotted keys;
// everything else is JSON. `key=-` unsets, `key=@other` copies the pointer of the field other. Times keep nanoseconds
// but not locations or monotonic readings, and an empty list or map is read back as nil.
package words

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shape lists the exceptions of a struct type from the rules. Fields are given by their Go names; names of fields
// that don't exist have no effect.
type Shape struct {
	// Head fields come first and without a key. They identify an element of a list.
	Head []string
	// Tail comes last, in parentheses.
	Tail string
	// Names overrides keys. Older has the keys of earlier formats, which can still be read. The JSON name of a field
	// can also be read.
	Names, Older map[string]string
	// Lists maps fields that are written as a line per element to the keyword that begins such a line.
	Lists map[string]string
	// Always reports, given a pointer to the struct, when a field is written even if it is zero.
	Always map[string]func(pointer any) bool
	// Hidden are string fields with a content that must not be shown.
	Hidden []string
	// Drop are fields that aren't written at all; DropKey drops one key of a map.
	Drop    []string
	DropKey map[string]string
}

// hidden replaces the value of a hidden field that isn't empty.
const hidden = "(hidden)"

type kind uint8

const (
	other kind = iota // left to encoding/json
	instant
	metaTime
	duration
	boolean
	integer
	unsigned
	text
	structure
	pointer
	list
	mapping
)

// Type is the plan for reading and writing the values of one Go type. It is immutable.
type Type struct {
	rt     reflect.Type
	size   uintptr
	kind   kind
	elem   *Type
	fields []*Field
	head   []*Field
	tail   *Field
	byName map[string]*Field
}

// Field is the plan for reading and writing one field of a struct.
type Field struct {
	// Name is the field's key in the text, GoName its name in Go.
	Name, GoName string
	// Type is the plan for the field's values.
	Type *Type
	// Line is the keyword of the field's lines, if the field is a list that is written as a line per element; empty
	// for other fields.
	Line string
	json string
	// older is the key of an earlier format; empty for none.
	older   string
	index   []int
	offset  uintptr
	apart   bool // head, tail or list: not written as key=value
	hidden  bool
	dropKey string
	always  func(any) bool
}

// set returns the field of the struct v as a value that can be set.
func (f *Field) set(v reflect.Value) reflect.Value {
	if len(f.index) == 1 {
		return v.Field(f.index[0])
	}
	return v.FieldByIndex(f.index)
}

// Fields returns the fields in the order of the struct, including those of embedded structs.
func (t *Type) Fields() []*Field { return t.fields }

// Types holds the plans of types and of all types that these contain. It is immutable and safe for concurrent use.
type Types struct {
	shapes map[reflect.Type]Shape
	types  map[reflect.Type]*Type
}

// NewTypes builds the plans for the types and for all types that these contain.
func NewTypes(shapes map[reflect.Type]Shape, types ...reflect.Type) *Types {
	ts := &Types{shapes: shapes, types: map[reflect.Type]*Type{}}
	for _, t := range types {
		ts.plan(t)
	}
	return ts
}

// Type returns the plan for one of these types; nil for any other type.
func (ts *Types) Type(rt reflect.Type) *Type { return ts.types[rt] }

func (ts *Types) plan(rt reflect.Type) *Type {
	if t := ts.types[rt]; t != nil {
		return t
	}
	t := &Type{rt: rt, size: rt.Size(), kind: kindOf(rt)}
	ts.types[rt] = t
	switch t.kind {
	case pointer, list, mapping:
		t.elem = ts.plan(rt.Elem())
	case structure:
		t.byName = map[string]*Field{}
		ts.addFields(t, rt, nil, 0)
		ts.shape(t, ts.shapes[rt])
	}
	return t
}

func kindOf(rt reflect.Type) kind {
	switch rt {
	case reflect.TypeFor[time.Time]():
		return instant
	case reflect.TypeFor[metav1.Time]():
		return metaTime
	case reflect.TypeFor[time.Duration]():
		return duration
	}
	if m := reflect.TypeFor[json.Marshaler](); rt.Kind() != reflect.Pointer &&
		(rt.Implements(m) || reflect.PointerTo(rt).Implements(m)) {
		return other
	}
	switch rt.Kind() {
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return unsigned
	case reflect.String:
		return text
	case reflect.Struct:
		return structure
	case reflect.Pointer:
		return pointer
	case reflect.Slice:
		if rt.Elem().Kind() != reflect.Uint8 {
			return list
		}
	case reflect.Map:
		if rt.Key().Kind() == reflect.String {
			return mapping
		}
	}
	return other
}

func (ts *Types) addFields(t *Type, rt reflect.Type, at []int, offset uintptr) {
	for i := range rt.NumField() {
		sf := rt.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		index := append(at[:len(at):len(at)], i)
		if sf.Anonymous && name == "" && kindOf(sf.Type) == structure {
			ts.addFields(t, sf.Type, index, offset+sf.Offset)
			continue
		}
		if !sf.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = lowerCamel(sf.Name)
		}
		t.fields = append(t.fields,
			&Field{Name: name, GoName: sf.Name, json: name, index: index, offset: offset + sf.Offset,
				Type: ts.plan(sf.Type)})
	}
}

// shape applies the exceptions in s to the fields of t, and indexes the fields.
func (ts *Types) shape(t *Type, s Shape) {
	byGoName := map[string]*Field{}
	remaining := t.fields[:0]
	for _, f := range t.fields {
		if slices.Contains(s.Drop, f.GoName) {
			continue
		}
		remaining = append(remaining, f)
		if name := s.Names[f.GoName]; name != "" {
			f.Name = name
		}
		f.Line = s.Lists[f.GoName]
		f.always, f.dropKey, f.hidden = s.Always[f.GoName], s.DropKey[f.GoName], slices.Contains(s.Hidden, f.GoName)
		f.apart = f.Line != "" || f.GoName == s.Tail || slices.Contains(s.Head, f.GoName)
		f.older = s.Older[f.GoName]
		byGoName[f.GoName] = f
		t.byName[f.Name] = f
	}
	for _, f := range remaining {
		for _, name := range [...]string{f.json, f.older} {
			if name != "" && t.byName[name] == nil {
				t.byName[name] = f
			}
		}
	}
	t.fields = remaining
	t.tail = byGoName[s.Tail]
	for _, name := range s.Head {
		if f := byGoName[name]; f != nil {
			t.head = append(t.head, f)
		}
	}
}

// lowerCamel turns SandboxID into sandboxID, ID into id, OOMScore into oomScore.
func lowerCamel(s string) string {
	r := []rune(s)
	for i := range r {
		if !unicode.IsUpper(r[i]) || i > 0 && i+1 < len(r) && unicode.IsLower(r[i+1]) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}

// flat reports whether a value is written as one simple word.
func (t *Type) flat() bool {
	switch t.kind {
	case instant, metaTime, duration, boolean, integer, unsigned, text:
		return true
	}
	return false
}

// nested returns the struct type of a value or of a pointer's target; nil for other types.
func (t *Type) nested() *Type {
	if t.kind == pointer {
		t = t.elem
	}
	if t.kind == structure {
		return t
	}
	return nil
}
