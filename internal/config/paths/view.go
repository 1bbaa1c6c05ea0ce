package paths

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// node is one value for output.
type node struct {
	name string // "" for an element of a list
	path string // "" if note isn't called for this node
	// Exactly one of scalar, fields and items isn't nil. Empty lists and maps are written, too, because they prevent
	// defaults.
	scalar json.RawMessage
	fields []node
	items  []node
}

// show returns the tree of c for output. It has the values that the JSON of c has, except structs without fields. In
// addition it has empty lists and maps, because they prevent defaults, and zero values for which note returns a text.
func show(c *v1beta1.KubeletConfiguration, note func(path string) string) node {
	v := viewer{note: note}
	root := node{fields: []node{
		{name: "apiVersion", scalar: inJSON(cmp.Or(c.APIVersion, v1beta1.SchemeGroupVersion.String()))},
		{name: "kind", scalar: inJSON(cmp.Or(c.Kind, "KubeletConfiguration"))},
	}}
	for _, f := range settings(c) {
		if n, ok := v.field("", f); ok {
			root.fields = append(root.fields, n)
		}
	}
	return root
}

// inJSON returns the JSON of a scalar, without escaping "<". It returns "null" for a value without JSON, such as NaN.
func inJSON(value any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil { // NaN or infinity
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// viewer builds nodes. It doesn't call note for the elements of a list, because a list as a whole is one setting.
type viewer struct{ note func(path string) string }

// field returns the node of a struct's field; false if it isn't shown.
func (v viewer) field(path string, f Field) (node, bool) {
	path = Below(path, f.Name)
	if unset(f.Value) || f.OmitEmpty && isZeroScalar(f.Value) && v.note(path) == "" {
		return node{}, false
	}
	n := v.value(path, f.Value)
	n.name = f.Name
	if isPlainStruct(f.Value) && len(n.fields) == 0 {
		return node{}, false
	}
	return n, true
}

func isPlainStruct(v reflect.Value) bool {
	return v.Kind() == reflect.Struct && !HasOwnForm(v.Type())
}

// isZeroScalar reports whether JSON omits v with "omitempty"; false for structs, lists and maps.
func isZeroScalar(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map:
		return false
	}
	return v.IsZero()
}

func (v viewer) value(path string, x reflect.Value) node {
	switch {
	case HasOwnForm(x.Type()):
		return node{path: path, scalar: scalarText(x)}
	case x.Kind() == reflect.Pointer && !x.IsNil():
		return v.value(path, x.Elem())
	case x.Kind() == reflect.Struct:
		n := node{path: path, fields: []node{}}
		for f := range Fields(x) {
			if child, ok := v.field(path, f); ok {
				n.fields = append(n.fields, child)
			}
		}
		return n
	case x.Kind() == reflect.Map:
		n := node{path: path, fields: []node{}}
		for _, key := range sortedKeys(x) {
			child := v.value(Of(path, key), x.MapIndex(key))
			child.name = key.String()
			n.fields = append(n.fields, child)
		}
		return n
	case x.Kind() == reflect.Slice:
		n := node{path: path, items: []node{}}
		unnoted := viewer{note: func(string) string { return "" }}
		for i := range x.Len() {
			n.items = append(n.items, unnoted.value("", x.Index(i)))
		}
		return n
	}
	return node{path: path, scalar: scalarText(x)}
}

func scalarText(x reflect.Value) json.RawMessage {
	value := x.Interface()
	if d, ok := value.(logsapi.TimeOrMetaDuration); ok {
		value = d.Duration // "5s" instead of 5000000000; both can be read
	}
	return inJSON(value)
}
