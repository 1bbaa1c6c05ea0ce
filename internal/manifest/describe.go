package manifest

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// element is the schema of a list's items; nil, which takes anything, for a nil schema.
func (s *schema) element() *schema {
	if s == nil {
		return nil
	}
	return s.elem
}

// child is the schema of a field or of a map's value; false for an unknown field.
func (s *schema) child(key string) (*schema, bool) {
	if s == nil {
		return nil, true
	}
	if s.kind == reflect.Map {
		return s.elem, true
	}
	child, ok := s.fields[key]
	return child, ok
}

// childPath writes a path as field.Path does: fields after a dot, the keys of
// a map in brackets. One that is too long for a person to read ends early.
func (s *schema) childPath(path, key string) string {
	if len(path) > maxPath {
		return path
	}
	if len(key) > maxPath {
		key = shorten(key, maxPath)
	}
	if s != nil && s.kind == reflect.Map {
		return path + "[" + key + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func indexPath(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// shorten cuts a text that a manifest's author chose to what can be told.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// describe says what a node is, with its article.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == tagBool, saysBool(n):
		return "a boolean (" + n.Value + ")"
	case n.ShortTag() == tagInt, n.ShortTag() == tagFloat:
		return "a number (" + quoteShort(n) + ")"
	case n.ShortTag() == tagNull:
		return "null"
	case n.ShortTag() == tagString, n.ShortTag() == tagTimestamp:
		return "a string (" + quoteShort(n) + ")"
	default:
		return "of the YAML type " + n.ShortTag()
	}
}

// describe says what a node is, with its article, and of a Secret's no more than that.
func (c *checker) describe(n *yaml.Node) string {
	if c.secret {
		return typeOf(n)
	}
	return describe(n)
}

// typeOf says what a node is, with its article, and no more than that: where no object is
// around it, nobody can tell whether it is a Secret's, or not even meant as a manifest.
func typeOf(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return describe(n)
	}
	if !slices.Contains(plainTags, n.ShortTag()) {
		return "of an unknown YAML type" // whose name may be a value that begins with "!"
	}
	what, _, _ := strings.Cut(describe(n), " (")
	return what
}

// want says what a field must be instead of n, with its article and advice.
func (s *schema) want(n *yaml.Node) string {
	switch s.kind {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if n.Kind == yaml.ScalarNode {
			return "a string: put it in quotes if that is the value meant"
		}
		return "a string"
	default:
		return "a whole number"
	}
}

// quoteShort is a node's text, cut to what fits in a message.
func quoteShort(n *yaml.Node) string {
	const most = 40
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return describe(n)
	case yaml.AliasNode:
		return "*" + n.Value
	}
	return strconv.Quote(shorten(n.Value, most))
}

// plainTags are the tags of scalars whose names say no more than their type.
var plainTags = []string{tagNull, tagBool, tagString, tagInt, tagFloat, tagTimestamp, tagBinary}

// quote is a node's text, cut to what fits in a message, and nothing of a Secret's.
func (c *checker) quote(n *yaml.Node) string {
	if c.secret {
		return "the value"
	}
	return quoteShort(n)
}

// anchor is an anchor's name as the YAML parser tells it. It may be a value that begins
// with a star and isn't in quotes.
var anchor = regexp.MustCompile(`anchor '[^']*'`)

// withoutAnchors is what the parser says of a text, without the only thing in it that
// is from the text.
func withoutAnchors(message string) string { return anchor.ReplaceAllString(message, "anchor") }

// customName is what a person calls a type with its own JSON form.
func customName(t reflect.Type) string {
	switch t {
	case quantityType:
		return `quantity (such as "500m" or "64Mi")`
	case reflect.TypeFor[intstr.IntOrString]():
		return "number or name"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return `time (such as "2026-01-02T15:04:05Z")`
	default:
		return t.Name()
	}
}
