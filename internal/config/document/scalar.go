package document

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kjson "sigs.k8s.io/json"

	"github.com/deckhand-node/deckhand/internal/plaintext"
)

// scalar reads a scalar, through JSON, as every reader of this API does. If it
// can't be read, v stays as it is.
func (d *decoder) scalar(path string, n *yaml.Node, v reflect.Value) {
	if isQuantity(v.Type()) && !sane(n.Value) {
		d.fail(n, path, "%s is too long or has too large an exponent for a quantity", shown(path, n))
		return
	}
	plain, ok := plainValue(n)
	text, err := json.Marshal(plain) // fails for infinity and NaN
	read := reflect.New(v.Type())
	if err == nil && ok {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, read.Interface())
	}
	if !ok || err != nil {
		d.fail(n, path, "%s is not %s%s", shown(path, n), expected(v.Type(), n), quotes(v.Type(), n))
		return
	}
	v.Set(read.Elem())
}

func isQuantity(t reflect.Type) bool {
	return t == reflect.TypeFor[resource.Quantity]() || t == reflect.TypeFor[resource.QuantityValue]()
}

// maxQuantity is the longest text of a quantity that is read.
const maxQuantity = 64

var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3,}`)

// sane keeps texts from the quantity parser on which it, or whoever computes with
// the quantity, would take forever: powers of ten are worked out, however large.
func sane(text string) bool {
	return len(text) <= maxQuantity && !hugeExponent.MatchString(text)
}

// plainValue is what the scalar n means in JSON; false if it isn't one or can't
// be told. YAML's older words for booleans (yes, no, on, off) count as such, as
// for the kubelet.
func plainValue(n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		return nil, false
	}
	var b bool
	if (n.Style == 0 || n.ShortTag() == "!!bool") && n.Decode(&b) == nil {
		return b, true
	}
	switch n.ShortTag() {
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i, true
		}
		var u uint64 // may still be a number for a field with a fraction
		err := n.Decode(&u)
		return u, err == nil
	case "!!float":
		var f float64
		err := n.Decode(&f)
		return f, err == nil
	}
	return n.Value, true
}

// secretFields begin the paths of fields with secrets in their values: an
// Authorization header, a password in a URL.
const secretFields = "staticPodURL"

func isSecret(path string) bool { return strings.HasPrefix(path, secretFields) }

// shown is the value at path as a message names it, and nothing of one that is secret.
func shown(path string, n *yaml.Node) string {
	if isSecret(path) && n.Kind == yaml.ScalarNode {
		return "the value"
	}
	return show(n)
}

// shownPath is a path as a message names it. Of a secret one, what stands in brackets ends
// where no header's name goes on: a name may have become one with the value.
func shownPath(path string) string {
	if before, name, ok := strings.Cut(path, "["); ok && isSecret(path) {
		if end := strings.IndexAny(name, ": \t"); end >= 0 {
			path = before + "[" + name[:end] + "…]"
		}
	}
	return plaintext.Line(path)
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

// quotes tells that n would be a value of type t without the quotes around it.
func quotes(t reflect.Type, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0 {
		return ""
	}
	bare := yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}
	switch tag := bare.ShortTag(); {
	case t.Kind() == reflect.Bool && tag == "!!bool", (reflect.Zero(t).CanInt() || reflect.Zero(t).CanUint()) && tag == "!!int":
		return "; leave the quotes out"
	}
	return ""
}

// expected says in words what a field of type t takes, which n isn't.
func expected(t reflect.Type, n *yaml.Node) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return `a duration such as "1m30s"`
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		return `a quantity such as "500m" or "1Gi"`
	case reflect.TypeFor[metav1.Time]():
		return `a time such as "2026-01-31T12:00:00Z"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if n.Kind != yaml.ScalarNode {
			return "a text"
		}
		return "a text (put it in quotes)"
	case reflect.Int32:
		if n.ShortTag() == "!!int" { // it is one, but doesn't fit
			return fmt.Sprintf("a whole number from %d to %d", math.MinInt32, math.MaxInt32)
		}
		return "a whole number"
	case reflect.Int64:
		return "a whole number"
	case reflect.Uint32:
		return "a whole number of 0 or more"
	case reflect.Float64:
		return "a number"
	default:
		return "a valid " + t.Name()
	}
}
