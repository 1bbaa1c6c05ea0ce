package document

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// What bounds the reading of one file.
const (
	// maxValues is how many values are read, aliases as often as they are used, so
	// that a few lines of nested ones can't grow without end.
	maxValues = 20_000
	// maxErrors is how many errors are told.
	maxErrors = 200
	// maxName is the longest name of a value, in bytes: that of a resource, with
	// 253 before the slash and 63 behind it.
	maxName = 317
)

// decoder lays what a document gives over a configuration piece by piece, so that
// each error has its own path and line and one error doesn't hide the next.
type decoder struct {
	errs []Error
	// given takes down what was read, as coming from (a line in) from.
	given places
	from  Origin
	// values counts what was read.
	values int
	// inList counts the lists around what is being read.
	inList int
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	switch e := (Error{Line: n.Line, Path: shownPath(path), Message: fmt.Sprintf(format, args...)}); {
	case len(d.errs) < maxErrors:
		d.errs = append(d.errs, e)
	case len(d.errs) == maxErrors:
		d.errs = append(d.errs, Error{Line: n.Line, Message: "there are more errors from here on"})
	}
}

// full tells that no more is to be read.
func (d *decoder) full() bool { return d.values > maxValues || len(d.errs) > maxErrors }

// value lays n over v, whatever v's type is. key is the node of its name.
func (d *decoder) value(path string, key, n *yaml.Node, v reflect.Value) {
	n = yamltext.Deref(n)
	if d.values++; d.values == maxValues+1 {
		d.fail(n, path, "there are more than %d values in this file", maxValues)
	}
	if d.full() {
		return
	}
	if isNull(n) {
		v.SetZero()
		d.given.forget(path)
		return
	}
	t := v.Type()
	if v.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	nested := !paths.HasOwnForm(t) && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map)
	if t.Kind() == reflect.Slice {
		d.given.forget(path) // the elements of the list it replaces
	}
	if path != "" {
		d.given.set(path, Origin{Kind: d.from.Kind, Name: d.from.Name, Line: key.Line}, !nested || d.inList > 0)
	}
	if v.Kind() == reflect.Pointer {
		v = d.pointee(v)
	}
	switch {
	case nested && t.Kind() == reflect.Struct:
		d.object(path, n, v)
	case nested:
		d.mapping(path, n, v)
	case t.Kind() == reflect.Slice:
		d.list(path, n, v)
	default:
		d.scalar(path, n, v)
	}
}

// pointee makes v point to a copy of what it points to: what is laid over isn't
// changed for others who may know it.
func (d *decoder) pointee(v reflect.Value) reflect.Value {
	p := reflect.New(v.Type().Elem())
	if !v.IsNil() {
		p.Elem().Set(v.Elem())
	}
	v.Set(p)
	return p.Elem()
}

// isNull tells a null. As in a JSON merge patch (RFC 7386), which is what the
// kubelet makes of drop-ins, it takes back what is there: the field is not given.
func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// object lays the mapping n over the struct v.
func (d *decoder) object(path string, n *yaml.Node, v reflect.Value) {
	fields := map[string]reflect.Value{}
	for f := range paths.Fields(v) {
		fields[f.Name] = f.Value
	}
	child := func(key string) string { return paths.Below(path, key) }
	d.entries(n, path, child, func(key, value *yaml.Node) {
		field, ok := fields[key.Value]
		if !ok {
			d.fail(key, child(key.Value), "there is no such field%s", suggest(v, key.Value))
			return
		}
		d.value(child(key.Value), key, value, field)
	})
}

// mapping lays the mapping n over the map v, key by key. It writes to a map that is there: to
// copy what many files have laid together, once for each, would take minutes.
func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	child := func(key string) string { return paths.Of(path, key) }
	d.entries(n, path, child, func(key, value *yaml.Node) {
		name := reflect.ValueOf(key.Value).Convert(v.Type().Key())
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(child(key.Value), key, value, elem)
		if isNull(yamltext.Deref(value)) {
			elem = reflect.Value{} // deletes the key
		}
		v.SetMapIndex(name, elem)
	})
}

// entries calls do for each entry of the mapping n, except those whose name is
// none or was there before.
func (d *decoder) entries(n *yaml.Node, path string, child func(key string) string, do func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "%s is not a mapping of names to values", shown(path, n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content) && !d.full(); i += 2 {
		key := yamltext.Deref(n.Content[i])
		if why := badName(path, key); why != "" {
			d.fail(n.Content[i], path, "%s", why)
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.fail(key, child(key.Value), "it is given twice, first in line %d; remove one", line)
			continue
		}
		seen[key.Value] = key.Line
		do(key, n.Content[i+1])
	}
}

// badName says why key can't be the name of a value at path; "" if it can.
func badName(path string, key *yaml.Node) string {
	name := "the name " + show(key)
	if isSecret(path) {
		name = "the name"
	}
	switch {
	case key.Kind != yaml.ScalarNode:
		return show(key) + " can't be the name of a value"
	case key.ShortTag() == "!!merge":
		return `mappings aren't merged by "<<" here; write out what they share`
	case len(key.Value) > maxName:
		return fmt.Sprintf("%s has %d bytes; at most %d are read", name, len(key.Value), maxName)
	case strings.ContainsFunc(key.Value, unicode.IsControl):
		return name + " has control characters in it"
	}
	return ""
}

// brackets shows how to make a list of a single value.
func brackets(path string, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return ""
	}
	if isSecret(path) {
		return "; put it in brackets"
	}
	return fmt.Sprintf("; put it in brackets: [%s]", show(n))
}

// list replaces the list v as a whole.
func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "%s is not a list%s", shown(path, n), brackets(path, n))
		return
	}
	d.inList++
	defer func() { d.inList-- }()
	all := reflect.MakeSlice(v.Type(), 0, min(len(n.Content), maxValues))
	for i, item := range n.Content {
		if d.full() {
			break
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(paths.Of(path, i), item, item, elem)
		all = reflect.Append(all, elem)
	}
	v.Set(all)
}
