package yaml

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Limits of one document.
const (
	// maxDepth is how deep objects and lists may be nested. A Pod needs 15.
	maxDepth = 100
	// maxPath is how long a field's path may be, in bytes, before it is shortened.
	maxPath = 512
	// MaxAliasCost is the usual initial value of Decoder.AliasBudget, in bytes: far more than any file needs that a
	// person or a tool has written.
	MaxAliasCost = 4 << 20
	// elementCost is the cost of an element that is reached through an alias, in addition to its text, in bytes.
	elementCost = 16
)

// Rules are the caller's part of decoding: the texts of errors, and which nodes can be the name of a value.
type Rules interface {
	// Fail receives an error at a node, and reports whether to continue.
	Fail(n *Node, path, message string) bool
	// Misfit returns the error text for a node that doesn't fit the type at path.
	Misfit(path string, n *Node, m Misfit) string
	// Unknown returns the error text for a field name that doesn't exist; meant is the most similar field name, "" if
	// none is similar.
	Unknown(meant string) string
	// Twice returns the error text for a field that is given again; line is where it was given first.
	Twice(line int) string
	// Name returns the reason why a node can't be the name of a value in the object at path; "" if it can.
	Name(path string, key *Node) string
}

// Misfit is why a node can't be read as a value of a type.
type Misfit struct {
	// Type is the type that the node doesn't fit. It is nil for the value of "<<", which may be any object, and an
	// empty interface for a scalar with a tag for which JSON has no type.
	Type reflect.Type
	// Why is the reason why a number or quantity is invalid, as in "is not an integer". Err is the error of the
	// type's own parser. If both are empty, the kind of the node doesn't fit.
	Why string
	Err error
}

// Overlay is notified when a document sets or removes a value.
type Overlay interface {
	// Given is called when a document sets the value at path. part says that other documents may set other parts of
	// the value: it is a struct or a map that isn't in a list.
	Given(path string, key *Node, part bool)
	// Forget is called when the value at path, and all values below it, are removed.
	Forget(path string)
}

// Decoder reads nodes strictly into Go values by their JSON names. It is for one document, and
// one goroutine.
type Decoder struct {
	Rules Rules
	// Overlay makes the decoder merge objects and maps into the existing values; a null in a map then deletes the key.
	// Other values replace the existing ones, with and without Overlay.
	Overlay Overlay
	// MaxValues is the maximum number of values that are read; values behind an alias count for each use. 0 means no
	// limit.
	MaxValues int
	// Merge lets "<<" merge objects (https://yaml.org/type/merge.html).
	Merge bool
	// AliasBudget is the amount that aliases may add to the document, in bytes of text plus 16 for each element. The
	// caller sets it, usually to MaxAliasCost, and Decode reduces it. It stops small texts whose aliases expand to huge
	// documents ("billion laughs").
	AliasBudget int
	// Failed says that a part of the document is missing in the value, apart from unknown and repeated fields.
	Failed bool

	stopped bool
	// values counts the values read so far, inList the lists around the current value.
	values, inList int
	// active holds the alias targets that are being expanded, to detect targets that contain themselves.
	active []*Node
}

// Decode reads the node n into the variable to which into points.
func (d *Decoder) Decode(n *Node, into any) {
	d.value("", n, n, reflect.ValueOf(into).Elem(), 0)
}

func (d *Decoder) say(n *Node, path, message string) {
	d.stopped = d.stopped || !d.Rules.Fail(n, path, message)
}

func (d *Decoder) fail(n *Node, path, format string, args ...any) {
	d.Failed = true
	d.say(n, path, fmt.Sprintf(format, args...))
}

func (d *Decoder) misfit(n *Node, path string, t reflect.Type, m Misfit) {
	m.Type = t
	d.Failed = true
	d.say(n, path, d.Rules.Misfit(path, n, m))
}

// value reads n into v, of any type. key is the node with the value's name.
func (d *Decoder) value(path string, key, n *Node, v reflect.Value, depth int) {
	switch {
	case d.stopped:
		return
	case depth > maxDepth:
		d.fail(n, path, "nested more than %d levels deep", maxDepth)
		return
	case !d.pay(n, path):
		return
	}
	if n.Kind == yaml.AliasNode {
		d.alias(n, path, func() { d.value(path, key, n.Alias, v, depth+1) })
		return
	}
	if d.values++; d.values > d.MaxValues && d.MaxValues > 0 {
		d.fail(n, path, "there are more than %d values in this file", d.MaxValues)
		d.stopped = true
		return
	}
	if IsNull(n) {
		v.SetZero()
		d.forget(path)
		return
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	info := infoOf(t)
	if d.Overlay != nil {
		if info.form == listForm {
			d.forget(path) // forgets the elements of the list that is replaced
		}
		if path != "" {
			d.Overlay.Given(path, key, d.inList == 0 && (info.form == structForm || info.form == mapForm))
		}
	}
	if v.Kind() == reflect.Pointer {
		v = pointee(v)
	}
	d.typed(path, n, v, info, depth)
}

func (d *Decoder) typed(path string, n *Node, v reflect.Value, info *typeInfo, depth int) {
	var m *Misfit
	switch info.form {
	case structForm, mapForm:
		d.object(path, n, v, info, depth)
	case listForm:
		d.list(path, n, v, depth)
	case bytesForm:
		m = setBytes(v, n)
	case customForm:
		d.custom(path, n, v, depth)
	case anyForm:
		d.anything(path, n, v, v.Type(), depth)
	case nodeForm:
		v.Set(reflect.ValueOf(n).Elem())
	default:
		m = setScalar(v, n)
	}
	if m != nil {
		d.misfit(n, path, v.Type(), *m)
	}
}

func (d *Decoder) forget(path string) {
	if d.Overlay != nil {
		d.Overlay.Forget(path)
	}
}

// pay subtracts the cost of a node that is reached through an alias from AliasBudget. It reports false, after an
// error, if the budget is used up.
func (d *Decoder) pay(n *Node, path string) bool {
	if len(d.active) > 0 {
		d.AliasBudget -= elementCost + len(n.Value)
	}
	if d.AliasBudget < 0 {
		d.fail(n, path, "its aliases expand to too much text")
	}
	return d.AliasBudget >= 0
}

// alias calls do, which has to read the node that the alias n refers to. All values that do reads count as reached
// through an alias.
func (d *Decoder) alias(n *Node, path string, do func()) {
	if slices.Contains(d.active, n.Alias) {
		d.fail(n, path, "alias *%s contains itself", n.Value)
		return
	}
	d.active = append(d.active, n.Alias)
	do()
	d.active = d.active[:len(d.active)-1]
}

// pointee makes v point to a copy of its value: merging must not change a value that others share.
func pointee(v reflect.Value) reflect.Value {
	p := reflect.New(v.Type().Elem())
	if !v.IsNil() {
		p.Elem().Set(v.Elem())
	}
	v.Set(p)
	return p.Elem()
}

// custom lets a type with its own JSON form decode the value.
func (d *Decoder) custom(path string, n *Node, v reflect.Value, depth int) {
	var x any
	failed := d.Failed
	d.Failed = false
	d.anything(path, n, reflect.ValueOf(&x).Elem(), v.Type(), depth)
	if !d.Failed {
		if m := setCustom(v, n, x); m != nil {
			d.misfit(n, path, v.Type(), *m)
		}
	}
	d.Failed = d.Failed || failed
}

// anything reads n into an empty interface, as encoding/json would. t is the type of the field that contains the
// interface.
func (d *Decoder) anything(path string, n *Node, v reflect.Value, t reflect.Type, depth int) {
	switch n.Kind {
	case yaml.MappingNode:
		x := map[string]any{}
		d.typed(path, n, reflect.ValueOf(&x).Elem(), infoOf(reflect.TypeOf(x)), depth)
		v.Set(reflect.ValueOf(x))
	case yaml.SequenceNode:
		x := []any{}
		d.typed(path, n, reflect.ValueOf(&x).Elem(), infoOf(reflect.TypeOf(x)), depth)
		v.Set(reflect.ValueOf(x))
	default:
		x, m := scalar(n)
		switch {
		case m == nil:
			v.Set(reflect.ValueOf(x))
		case m.Why != "":
			d.misfit(n, path, t, *m)
		default:
			d.misfit(n, path, v.Type(), *m) // its tag fits nothing
		}
	}
}

// list replaces the list v as a whole.
func (d *Decoder) list(path string, n *Node, v reflect.Value, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.misfit(n, path, v.Type(), Misfit{})
		return
	}
	d.inList++
	defer func() { d.inList-- }()
	all := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	read := 0
	for ; read < len(n.Content) && !d.stopped; read++ {
		item := n.Content[read]
		d.value(indexPath(path, read), item, item, all.Index(read), depth+1)
	}
	v.Set(all.Slice(0, read))
}

// object is one struct or map being read.
type object struct {
	value reflect.Value
	info  *typeInfo
	path  string
	depth int
	// seen holds the fields read so far, valid or not, by name.
	seen map[string]*Node
}

// object merges the mapping n into v, a struct or a map. It changes an existing map in place: copying all values merged
// so far for each of many files would take minutes.
func (d *Decoder) object(path string, n *Node, v reflect.Value, info *typeInfo, depth int) {
	if n.Kind != yaml.MappingNode {
		d.misfit(n, path, v.Type(), Misfit{})
		return
	}
	if info.form == mapForm && (v.IsNil() || d.Overlay == nil) {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	}
	d.fields(&object{value: v, info: info, path: path, depth: depth, seen: make(map[string]*Node, len(n.Content)/2)}, n,
		false)
}

// fields reads the fields of n into o. If merged is true, n is the value of "<<", and it doesn't replace fields of o.
// Otherwise fields that o already contains are errors: they are given twice.
func (d *Decoder) fields(o *object, n *Node, merged bool) {
	var merges []*Node
	for i := 0; i+1 < len(n.Content) && !d.stopped; i += 2 {
		keyNode, value := n.Content[i], n.Content[i+1]
		if d.Merge && keyNode.ShortTag() == TagMerge {
			merges = append(merges, value)
			continue
		}
		key := Deref(keyNode)
		if key != keyNode {
			d.AliasBudget -= elementCost + len(key.Value)
		}
		if !d.pay(key, o.path) {
			continue
		}
		if why := d.Rules.Name(o.path, key); why != "" {
			d.fail(keyNode, o.path, "%s", why)
			continue
		}
		if before, ok := o.seen[key.Value]; ok {
			if !merged {
				d.say(keyNode, o.child(key.Value), d.Rules.Twice(before.Line))
			}
			continue
		}
		o.seen[key.Value] = keyNode
		d.field(o, keyNode, key.Value, value)
	}
	for _, m := range merges {
		d.merge(o, m)
	}
}

func (d *Decoder) field(o *object, keyNode *Node, name string, n *Node) {
	path := o.child(name)
	if o.info.form == structForm {
		index, known := o.info.fields[name]
		if !known {
			d.say(keyNode, path, d.Rules.Unknown(o.info.suggest(name)))
			return
		}
		d.value(path, keyNode, n, o.value.FieldByIndex(index), o.depth+1)
		return
	}
	t := o.value.Type()
	elem := reflect.New(t.Elem()).Elem()
	d.value(path, keyNode, n, elem, o.depth+1)
	if d.Overlay != nil && IsNull(Deref(n)) {
		elem = reflect.Value{} // deletes the key
	}
	o.value.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), elem)
}

// merge adds the fields of the value of "<<": an object, an alias of one, or a list of those.
func (d *Decoder) merge(o *object, n *Node) {
	if len(d.active) > maxDepth {
		d.AliasBudget = -1
	}
	if !d.pay(n, o.path) {
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		d.alias(n, o.path, func() { d.merge(o, n.Alias) })
	case yaml.MappingNode:
		d.fields(o, n, true)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			d.merge(o, item)
		}
	default:
		d.misfit(n, o.path, nil, Misfit{})
	}
}

// child returns the path of a field or key of o, formatted as by field.Path: fields after a dot, the keys of a map in
// brackets. It shortens a path that is too long for a person to read.
func (o *object) child(key string) string {
	switch {
	case len(o.path) > maxPath:
		return o.path
	case len(key) > maxPath:
		key = Shorten(key, maxPath)
	}
	switch {
	case o.info.form == mapForm && o.value.Type() != reflect.TypeFor[map[string]any]():
		return o.path + "[" + key + "]"
	case o.path == "":
		return key
	}
	return o.path + "." + key
}

func indexPath(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// Shorten truncates a text from a document so that it fits in a message. most is the largest length in bytes, without
// the "..." that it appends.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
