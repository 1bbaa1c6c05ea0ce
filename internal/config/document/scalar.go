package document

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// Misfit implements yaml.Rules.
func (d *decoder) Misfit(path string, n *yaml.Node, m yaml.Misfit) string {
	switch kind := m.Type.Kind(); {
	case isQuantity(m.Type) && m.Why != "":
		return shown(path, n) + " " + m.Why
	case kind == reflect.Interface:
		return shown(path, n) + " has a YAML tag that isn't supported"
	case expectedOwn(m.Type) != "": // a type with its own JSON form reports its own errors
	case kind == reflect.Struct || kind == reflect.Map:
		return shown(path, n) + " is not a mapping of names to values"
	case kind == reflect.Slice:
		return shown(path, n) + " is not a list" + brackets(path, n)
	}
	return fmt.Sprintf("%s is not %s%s", shown(path, n), expected(m.Type, n), quotes(m.Type, n))
}

func isQuantity(t reflect.Type) bool {
	return t == reflect.TypeFor[resource.Quantity]() || t == reflect.TypeFor[resource.QuantityValue]()
}

// secretFields is the prefix of the paths of fields whose values are secret: an Authorization header, a password in a
// URL.
const secretFields = "staticPodURL"

func isSecret(path string) bool { return strings.HasPrefix(path, secretFields) }

// shown formats the value at path for a message, without secrets.
func shown(path string, n *yaml.Node) string {
	if isSecret(path) && n.Kind == goyaml.ScalarNode {
		return "the value"
	}
	return show(n)
}

// shownPath formats a path for a message. If a typing error makes a header's value part of a key, the path contains a
// secret. So for a secret field, shownPath cuts the key in brackets after the last character that a header name may
// have.
func shownPath(path string) string {
	if before, name, ok := strings.Cut(path, "["); ok && isSecret(path) {
		if end := strings.IndexAny(name, ": \t"); end >= 0 {
			path = before + "[" + name[:end] + "…]"
		}
	}
	return terminal.Line(path)
}

// show formats a value for a message: short, and on one line.
func show(n *yaml.Node) string {
	switch n.Kind {
	case goyaml.MappingNode:
		return "a mapping"
	case goyaml.SequenceNode:
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

// quotes returns a hint if removing the quotes of n would make it a valid value of type t.
func quotes(t reflect.Type, n *yaml.Node) string {
	if n.Kind != goyaml.ScalarNode || n.Style&(goyaml.DoubleQuotedStyle|goyaml.SingleQuotedStyle) == 0 {
		return ""
	}
	bare := yaml.Node{Kind: goyaml.ScalarNode, Value: n.Value}
	switch tag := bare.ShortTag(); {
	case t.Kind() == reflect.Bool && tag == "!!bool", (reflect.Zero(t).CanInt() || reflect.Zero(t).CanUint()) &&
		tag == "!!int":
		return "; leave the quotes out"
	}
	return ""
}

// expectedOwn describes the values of a type with its own JSON form; "" for other types.
func expectedOwn(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return `a duration such as "1m30s"`
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		return `a quantity such as "500m" or "1Gi"`
	case reflect.TypeFor[metav1.Time]():
		return `a time such as "2026-01-31T12:00:00Z"`
	}
	return ""
}

// expected describes the valid values of a field of type t, for an error about the invalid value n.
func expected(t reflect.Type, n *yaml.Node) string {
	if own := expectedOwn(t); own != "" {
		return own
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if n.Kind != goyaml.ScalarNode {
			return "a string"
		}
		return "a string (put it in quotes)"
	case reflect.Int32:
		if n.ShortTag() == "!!int" { // an integer out of range
			return fmt.Sprintf("an integer from %d to %d", math.MinInt32, math.MaxInt32)
		}
		return "an integer"
	case reflect.Int64:
		return "an integer"
	case reflect.Uint32:
		return "an integer of 0 or more"
	case reflect.Float64:
		return "a number"
	default:
		return "a valid " + t.Name()
	}
}

// brackets returns a hint how to make a list of a single value.
func brackets(path string, n *yaml.Node) string {
	if n.Kind != goyaml.ScalarNode || n.Value == "" {
		return ""
	}
	if isSecret(path) {
		return "; put it in brackets"
	}
	return fmt.Sprintf("; put it in brackets: [%s]", show(n))
}
