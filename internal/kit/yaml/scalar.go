package yaml

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The YAML tags of JSON's types, and those with a special meaning in this package.
const (
	TagNull      = "!!null"
	TagBool      = "!!bool"
	TagString    = "!!str"
	TagInt       = "!!int"
	TagFloat     = "!!float"
	TagTimestamp = "!!timestamp"
	TagBinary    = "!!binary"
	TagMerge     = "!!merge"
)

// SaysBool reports whether a plain word is a boolean for Kubernetes, which reads YAML 1.1: there, "y", "yes", "no",
// "on" and so on are booleans. A file must have the same meaning for deckhand and for Kubernetes.
func SaysBool(n *Node) bool {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	if n.Kind != yaml.ScalarNode || n.Style&quoted != 0 {
		return false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}

// isBool returns the value of a boolean; ok reports whether the node is one.
func isBool(n *Node) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != TagBool && !SaysBool(n) {
		return false, false
	}
	switch strings.ToLower(n.Value) {
	case "true", "y", "yes", "on":
		return true, true
	}
	return false, true
}

// IsNull reports whether a node is null. A name without a value has a null node.
func IsNull(n *Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == TagNull }

// isText reports whether a node is a string. Timestamps count as strings.
func isText(n *Node) bool {
	tag := n.ShortTag()
	return n.Kind == yaml.ScalarNode && (tag == TagString || tag == TagTimestamp) && !SaysBool(n)
}

// scalar returns the JSON value of a scalar: a bool, int64, uint64, float64 or string.
func scalar(n *Node) (any, *Misfit) {
	if b, ok := isBool(n); ok {
		return b, nil
	}
	switch tag := n.ShortTag(); {
	case isText(n):
		return n.Value, nil
	case n.Kind == yaml.ScalarNode && (tag == TagInt || tag == TagFloat):
		return number(n)
	}
	return nil, &Misfit{}
}

func number(n *Node) (any, *Misfit) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, &Misfit{Why: "is not a number that can be read"}
	}
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, &Misfit{Why: "is not a number"}
		}
		// A number without a fraction is an integer, even if it is written like a float, such as 1e3.
		if whole, err := strconv.ParseInt(strconv.FormatFloat(v, 'f', -1, 64), 10, 64); err == nil {
			return whole, nil
		}
	}
	return v, nil
}

// setScalar sets v, which is a bool, a string or a number.
func setScalar(v reflect.Value, n *Node) *Misfit {
	x, misfit := scalar(n)
	if misfit != nil && (v.Kind() == reflect.Bool || v.Kind() == reflect.String) {
		return &Misfit{} // reasons are about numbers, and the field is none
	}
	if misfit != nil {
		return misfit
	}
	switch x := x.(type) {
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(x)
			return nil
		}
		return &Misfit{}
	case string:
		if v.Kind() == reflect.String {
			v.SetString(x)
			return nil
		}
		return &Misfit{}
	}
	return setNumber(v, x)
}

func setNumber(v reflect.Value, x any) *Misfit {
	whole, isWhole := x.(int64)
	large, isLarge := x.(uint64)
	if fraction, ok := x.(float64); ok {
		switch {
		case v.CanFloat():
			v.SetFloat(fraction)
		case v.CanInt() || v.CanUint():
			return &Misfit{Why: "is not an integer"}
		default:
			return &Misfit{}
		}
		return nil
	}
	switch {
	case v.CanFloat() && isLarge:
		v.SetFloat(float64(large))
	case v.CanFloat():
		v.SetFloat(float64(whole))
	case v.CanInt() && isWhole && !v.OverflowInt(whole):
		v.SetInt(whole)
	case v.CanUint() && isWhole && whole >= 0 && !v.OverflowUint(uint64(whole)):
		v.SetUint(uint64(whole))
	case v.CanInt() || v.CanUint():
		return &Misfit{Why: fmt.Sprintf("is too large for this field (%d bits)", v.Type().Bits())}
	default:
		return &Misfit{}
	}
	return nil
}

func setBytes(v reflect.Value, n *Node) *Misfit {
	if !isText(n) {
		return &Misfit{}
	}
	data, err := base64.StdEncoding.DecodeString(n.Value)
	if err != nil {
		return &Misfit{Err: err}
	}
	v.SetBytes(data)
	return nil
}

// setCustom sets v from x, the value of node n, with the JSON decoder of v's own type.
func setCustom(v reflect.Value, n *Node, x any) *Misfit {
	if isQuantity(v.Type()) && !sane(n.Value) {
		return &Misfit{Why: "is too long or has too large an exponent for a quantity"}
	}
	text, err := json.Marshal(x)
	read := reflect.New(v.Type())
	if err == nil {
		err = json.Unmarshal(text, read.Interface())
	}
	if err != nil {
		return &Misfit{Err: err}
	}
	v.Set(read.Elem())
	return nil
}

func isQuantity(t reflect.Type) bool {
	return t == reflect.TypeFor[resource.Quantity]() || t == reflect.TypeFor[resource.QuantityValue]()
}

// maxQuantity is the maximum length in bytes of a text that is read as a quantity.
const maxQuantity = 64

var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3,}`)

// sane rejects texts with which the quantity parser, or later arithmetic with the quantity, would take forever: both
// compute powers of ten of any size.
func sane(text string) bool {
	return len(text) <= maxQuantity && !hugeExponent.MatchString(text)
}
