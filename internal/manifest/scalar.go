package manifest

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The YAML tags that a manifest's nodes can have.
const (
	tagNull      = "!!null"
	tagBool      = "!!bool"
	tagString    = "!!str"
	tagInt       = "!!int"
	tagFloat     = "!!float"
	tagTimestamp = "!!timestamp"
	tagBinary    = "!!binary"
	tagMerge     = "!!merge"
	tagSeq       = "!!seq"
	tagMap       = "!!map"
)

// saysBool tells whether a plain word is a boolean for Kubernetes, which reads
// YAML 1.1: "y", "yes", "no", "on" and so on are. The same file must mean the same
// here and there.
func saysBool(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}

// isBool tells whether a node is a boolean, and which.
func isBool(n *yaml.Node) (value, ok bool) {
	if n.ShortTag() != tagBool && !saysBool(n) {
		return false, false
	}
	switch strings.ToLower(n.Value) {
	case "true", "y", "yes", "on":
		return true, true
	}
	return false, true
}

// accepts tells whether a node's kind fits. Whether a number fits its field is
// seen when it is written.
func (s *schema) accepts(n *yaml.Node) bool {
	switch s.kind {
	case reflect.Struct, reflect.Map:
		return n.Kind == yaml.MappingNode
	case reflect.Slice:
		return n.Kind == yaml.SequenceNode
	case reflect.Bool:
		_, ok := isBool(n)
		return n.Kind == yaml.ScalarNode && ok
	case reflect.String:
		tag := n.ShortTag()
		return n.Kind == yaml.ScalarNode && (tag == tagString || tag == tagTimestamp) && !saysBool(n)
	default:
		tag := n.ShortTag()
		return n.Kind == yaml.ScalarNode && (tag == tagInt || tag == tagFloat)
	}
}

// scalar writes a string, number or boolean.
func (c *checker) scalar(n *yaml.Node, s *schema, path string) {
	if b, ok := isBool(n); ok {
		c.out.WriteString(strconv.FormatBool(b))
		return
	}
	switch tag := n.ShortTag(); tag {
	case tagInt, tagFloat:
		c.number(n, s, path)
	case tagString, tagTimestamp:
		writeJSON(&c.out, n.Value)
	default:
		if c.secret {
			tag = "of a Secret's value"
		}
		c.fail(n, path, "the YAML tag %s is not supported", tag)
	}
}

// base64 writes bytes, which stand in a manifest as base64 text.
func (c *checker) base64(n *yaml.Node, path string) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != tagString && tag != tagTimestamp || saysBool(n) {
		c.fail(n, path, "is %s, but must be a string of base64 text", c.describe(n))
		return
	}
	if _, err := base64.StdEncoding.DecodeString(n.Value); err != nil {
		c.fail(n, path, "is no base64 text: %v; plain text goes into %s", err, c.plainField())
		return
	}
	writeJSON(&c.out, n.Value)
}

// plainField is where plain text goes in place of base64.
func (c *checker) plainField() string {
	if c.secret {
		return "stringData"
	}
	return "data"
}

func (c *checker) number(n *yaml.Node, s *schema, path string) {
	var v any
	if err := n.Decode(&v); err != nil {
		c.fail(n, path, "%s is not a number that can be read", c.quote(n))
		return
	}
	if f, ok := v.(float64); ok {
		if math.IsInf(f, 0) || math.IsNaN(f) {
			c.fail(n, path, "%s is not a number", c.quote(n))
			return
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			v = int64(f)
		}
	}
	if why := s.misfit(v); why != "" {
		c.fail(n, path, "%s %s", c.quote(n), why)
		return
	}
	writeJSON(&c.out, v)
}

// misfit says why a number can't stand in a field, or "".
func (s *schema) misfit(v any) string {
	if s == nil {
		return ""
	}
	t, ok := intTypes[s.kind]
	if !ok {
		return ""
	}
	switch v := v.(type) {
	case int:
		ok = !t.OverflowInt(int64(v))
	case int64:
		ok = !t.OverflowInt(v)
	case float64:
		return "is not a whole number"
	default:
		ok = false
	}
	if !ok {
		return fmt.Sprintf("is too large for this field (%d bits)", t.Bits())
	}
	return ""
}

var intTypes = map[reflect.Kind]reflect.Type{
	reflect.Int:   reflect.TypeFor[int](),
	reflect.Int32: reflect.TypeFor[int32](),
	reflect.Int64: reflect.TypeFor[int64](),
}
