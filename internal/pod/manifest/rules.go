package manifest

import (
	"fmt"
	"reflect"
	"slices"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// rules are the yaml.Rules for a document: they word its errors and collect them.
type rules struct {
	// secret says that the document is a Secret, so that no error may contain a value.
	secret bool
	errors []Error
}

// Fail implements yaml.Rules. It always returns true, so that the rest of the document is also checked: it may contain
// a more serious error.
func (r *rules) Fail(n *yaml.Node, path, message string) bool {
	switch {
	case len(r.errors) < maxErrors:
		r.errors = append(r.errors, Error{Line: n.Line, Path: path, Message: yaml.Shorten(message, maxMessage)})
	case len(r.errors) == maxErrors:
		r.errors = append(r.errors,
			Error{Message: "there is more wrong with this document; only the beginning is reported"})
	}
	return true
}

// Unknown implements yaml.Rules.
func (r *rules) Unknown(meant string) string {
	if meant != "" {
		return fmt.Sprintf("unknown field; did you mean %q?", meant)
	}
	return "unknown field"
}

// Twice implements yaml.Rules.
func (r *rules) Twice(line int) string {
	return fmt.Sprintf("is given twice (first on line %d)", line)
}

// Name implements yaml.Rules. A number as a field's name is accepted as its text.
func (r *rules) Name(_ string, key *yaml.Node) string {
	if key.Kind != goyaml.ScalarNode {
		return fmt.Sprintf("a field's name is %s, but must be a string", r.describe(key))
	}
	if slices.Contains([]string{yaml.TagNull, yaml.TagBool, yaml.TagBinary}, key.ShortTag()) || yaml.SaysBool(key) {
		return fmt.Sprintf("the field's name %s is %s: put it in quotes", key.Value, r.describe(key))
	}
	return ""
}

// Misfit implements yaml.Rules.
func (r *rules) Misfit(_ string, n *yaml.Node, m yaml.Misfit) string {
	isBytes := m.Type == reflect.TypeFor[[]byte]()
	switch {
	case m.Type == nil:
		return `"<<" wants an object to merge, but has ` + r.describe(n)
	case m.Why != "":
		return r.quote(n) + " " + m.Why
	case m.Err != nil && isBytes:
		return fmt.Sprintf("is not valid base64: %v; plain text goes into %s", m.Err, r.plainField())
	case m.Err != nil && r.secret:
		return fmt.Sprintf("%s is not a valid %s", r.quote(n), customName(m.Type))
	case m.Err != nil:
		return fmt.Sprintf("%s is not a valid %s: %s", r.quote(n), customName(m.Type), m.Err)
	case isBytes:
		return fmt.Sprintf("is %s, but must be a base64 string", r.describe(n))
	case m.Type.Kind() == reflect.Interface && r.secret:
		return "the YAML tag of a Secret's value is not supported"
	case m.Type.Kind() == reflect.Interface:
		return fmt.Sprintf("the YAML tag %s is not supported", n.ShortTag())
	}
	return fmt.Sprintf("is %s, but must be %s", r.describe(n), want(m.Type, n))
}

// plainField returns the name of the field for plain text, as an alternative to base64.
func (r *rules) plainField() string {
	if r.secret {
		return "stringData"
	}
	return "data"
}

// want returns the type that the field must have, instead of the type of n, as words for a message, with advice.
func want(t reflect.Type, n *yaml.Node) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if n.Kind == goyaml.ScalarNode {
			return "a string: put it in quotes if that is the value meant"
		}
		return "a string"
	default:
		return "an integer"
	}
}

// describe returns the type of a node with its article ("a string") and its value, for a message. In a Secret it
// leaves out the value.
func (r *rules) describe(n *yaml.Node) string {
	if r.secret {
		return yaml.TypeOf(n)
	}
	return yaml.Describe(n)
}

// quote returns a node's text, truncated for a message. In a Secret it returns "the value" instead.
func (r *rules) quote(n *yaml.Node) string {
	if r.secret {
		return "the value"
	}
	return yaml.Quote(n)
}

// customName describes, for errors, a type that has its own JSON decoding.
func customName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return `quantity (such as "500m" or "64Mi")`
	case reflect.TypeFor[intstr.IntOrString]():
		return "number or name"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return `time (such as "2026-01-02T15:04:05Z")`
	default:
		return t.Name()
	}
}
