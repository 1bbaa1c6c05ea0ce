package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kjson "sigs.k8s.io/json"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// maxNodes bounds the values read from one file, so that a few lines of nested
// aliases can't grow without end.
const maxNodes = 20_000

// decoder fills values piece by piece, so that each error has its own path and
// line and one error doesn't hide the next.
type decoder struct {
	errs []Error
	// values counts what was read, aliases as often as they are used.
	values int
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	d.errs = append(d.errs, Error{Line: n.Line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// value reads n into v, whatever v's type is.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	n = yamltext.Deref(n)
	if d.values++; d.values > maxNodes {
		if d.values == maxNodes+1 { // the rest would only say the same
			d.fail(n, path, "there are more than %d values in this file", maxNodes)
		}
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // as in JSON: the field counts as not set
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case hasOwnForm(v.Type()):
		d.leaf(path, n, v)
	case v.Kind() == reflect.Struct:
		d.object(path, n, v)
	case v.Kind() == reflect.Map:
		d.mapping(path, n, v)
	case v.Kind() == reflect.Slice:
		d.list(path, n, v)
	default:
		d.leaf(path, n, v)
	}
}

// object reads the mapping n into the struct v.
func (d *decoder) object(path string, n *yaml.Node, v reflect.Value) {
	fields := map[string]reflect.Value{}
	collect(fields, v)
	child := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	d.entries(n, path, child, func(key, value *yaml.Node) {
		field, ok := fields[key.Value]
		if !ok {
			d.fail(key, child(key.Value), "there is no such field%s", suggest(fields, key.Value))
			return
		}
		d.value(child(key.Value), value, field)
	})
}

// mapping reads the mapping n into the map v.
func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	child := func(key string) string { return path + "[" + key + "]" }
	d.entries(n, path, child, func(key, value *yaml.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(child(key.Value), value, elem)
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), elem)
	})
}

// entries calls do for each entry of the mapping n, except those whose key was
// there before.
func (d *decoder) entries(n *yaml.Node, path string, child func(key string) string, do func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "%s is not a mapping of names to values", shown(path, n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := yamltext.Deref(n.Content[i])
		if key.Kind != yaml.ScalarNode {
			d.fail(n.Content[i], path, "%s can't be the name of a value", show(key))
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

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "%s is not a list", shown(path, n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, min(len(n.Content), maxNodes)))
	for i, item := range n.Content {
		if d.values > maxNodes {
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(fmt.Sprintf("%s[%d]", path, i), item, elem)
		v.Set(reflect.Append(v, elem))
	}
}

// leaf reads a scalar, through JSON, as every reader of this API does.
func (d *decoder) leaf(path string, n *yaml.Node, v reflect.Value) {
	plain, ok := scalar(n, v.Kind() == reflect.Bool)
	text, err := json.Marshal(plain) // fails for infinity and NaN
	if !ok || err != nil {
		d.fail(n, path, "%s is not %s", shown(path, n), expected(v.Type()))
		return
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, v.Addr().Interface()); err != nil {
		v.SetZero() // it may be half filled
		d.fail(n, path, "%s is not %s", shown(path, n), expected(v.Type()))
	}
}

// hasOwnForm tells types that read their own JSON (durations, quantities).
func hasOwnForm(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// collect maps JSON names to the fields of v, those of inlined structs included.
func collect(fields map[string]reflect.Value, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			collect(fields, v.Field(i))
		case name != "-" && name != "" && f.IsExported():
			fields[name] = v.Field(i)
		}
	}
}

// scalar is what the scalar n means in JSON; false if it isn't one or can't be
// told. asBool says that a boolean is wanted, in which YAML's older words (yes,
// no, on, off) count.
func scalar(n *yaml.Node, asBool bool) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		return nil, false
	}
	switch n.ShortTag() {
	case "!!int":
		var i int64
		err := n.Decode(&i)
		return i, err == nil
	case "!!float":
		var f float64
		err := n.Decode(&f)
		return f, err == nil
	case "!!bool":
		asBool = true
	}
	var b bool
	if asBool && n.Style == 0 && n.Decode(&b) == nil {
		return b, true
	}
	return n.Value, true
}

// secretField is the field whose values are secret: an Authorization header, for one.
const secretField = "staticPodURLHeader"

// shown is the value at path as a message names it, and nothing of one that is secret.
func shown(path string, n *yaml.Node) string {
	if strings.HasPrefix(path, secretField) && n.Kind == yaml.ScalarNode {
		return "the value"
	}
	return show(n)
}

// show is a value as a message names it: short, and on one line.
func show(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	const most = 64
	if r := []rune(n.Value); len(r) > most {
		return strconv.Quote(string(r[:most]) + "…")
	}
	if n.Style == 0 && n.ShortTag() != "!!str" {
		return n.Value
	}
	return strconv.Quote(n.Value)
}

// expected says in words what a field of type t takes.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return `a duration such as "1m30s"`
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		return `a quantity such as "500m" or "1Gi"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text (put it in quotes)"
	case reflect.Int32:
		return fmt.Sprintf("a whole number from %d to %d", math.MinInt32, math.MaxInt32)
	case reflect.Int64:
		return "a whole number"
	case reflect.Uint32:
		return fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32))
	case reflect.Float64:
		return "a number"
	default:
		return "a valid " + t.Name()
	}
}

// suggest offers the field that differs in upper and lower case only, the
// mistake that is easy to make and hard to see.
func suggest(fields map[string]reflect.Value, name string) string {
	for f := range fields {
		if strings.EqualFold(f, name) {
			return fmt.Sprintf("; did you mean %s?", f)
		}
	}
	return ""
}
