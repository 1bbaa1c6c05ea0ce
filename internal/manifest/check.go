package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// checker walks a document beside the schema, writes the document as JSON and
// notes everything that doesn't fit.
type checker struct {
	tree   *tree
	out    bytes.Buffer
	errors []Error
	// fatal is set once something was found that keeps the JSON from being read
	// as a pod; unknown and repeated fields don't: they are left out of it.
	fatal bool
	// secret says that no error may hold a value, as the document is a Secret.
	secret bool
	// active holds the alias targets being expanded, to find those that contain themselves.
	active []*yaml.Node
	// aliasCost is what following aliases has added so far, in all pods of a list.
	aliasCost *int
}

// check writes the whole document to c.out.
func (c *checker) check(s *schema) {
	c.value(c.tree.node, s, "", 0)
	slices.SortStableFunc(c.errors, func(a, b Error) int { return a.Line - b.Line })
}

func (c *checker) note(n *yaml.Node, path, format string, args ...any) {
	if len(c.errors) == maxErrors {
		c.errors = append(c.errors, Error{Message: "there is more wrong with this document; only the beginning is told"})
	}
	if len(c.errors) > maxErrors {
		return
	}
	c.errors = append(c.errors, Error{Line: c.tree.line(n), Path: path, Message: shorten(fmt.Sprintf(format, args...), maxMessage)})
}

// fail notes what makes the document unreadable, and writes something valid in its place.
func (c *checker) fail(n *yaml.Node, path, format string, args ...any) {
	c.note(n, path, format, args...)
	c.out.WriteString("null")
	c.fatal = true
}

// value checks and writes one node. A nil schema takes anything.
func (c *checker) value(n *yaml.Node, s *schema, path string, depth int) {
	if depth > maxDepth {
		c.fail(n, path, "nested more than %d levels deep", maxDepth)
		return
	}
	if !c.pay(n) {
		c.fail(n, path, "its aliases expand to too much text")
		return
	}
	switch {
	case n.Kind == yaml.AliasNode:
		c.alias(n, s, path, depth)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == tagNull:
		c.out.WriteString("null")
	case s != nil && s.bytes:
		c.base64(n, path)
	case s != nil && s.custom != nil:
		c.custom(n, s, path, depth)
	case s != nil && !s.accepts(n):
		c.fail(n, path, "is %s, but must be %s", c.describe(n), s.want(n))
	case n.Kind == yaml.MappingNode:
		c.mapping(n, s, path, depth)
	case n.Kind == yaml.SequenceNode:
		c.sequence(n, s, path, depth)
	default:
		c.scalar(n, s, path)
	}
}

// pay counts a node that is reached through an alias.
func (c *checker) pay(n *yaml.Node) bool {
	if len(c.active) > 0 {
		*c.aliasCost += elementCost + len(n.Value)
	}
	return *c.aliasCost <= maxAliasCost
}

func (c *checker) alias(n *yaml.Node, s *schema, path string, depth int) {
	if slices.Contains(c.active, n.Alias) {
		c.fail(n, path, "alias *%s contains itself", n.Value)
		return
	}
	c.active = append(c.active, n.Alias)
	c.value(n.Alias, s, path, depth+1)
	c.active = c.active[:len(c.active)-1]
}

func (c *checker) sequence(n *yaml.Node, s *schema, path string, depth int) {
	c.out.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			c.out.WriteByte(',')
		}
		c.value(item, s.element(), indexPath(path, i), depth+1)
	}
	c.out.WriteByte(']')
}

func (c *checker) unknown(n *yaml.Node, s *schema, path, key string) {
	if meant := s.suggest(key); meant != "" {
		c.note(n, s.childPath(path, key), "unknown field; did you mean %q?", meant)
		return
	}
	c.note(n, s.childPath(path, key), "unknown field")
}

// key returns the text of a mapping's key. Numbers are taken as their text.
func (c *checker) key(n *yaml.Node, path string) (string, bool) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
		*c.aliasCost += elementCost + len(n.Value)
	}
	if !c.pay(n) {
		c.fatal = true
		c.note(n, path, "its aliases expand to too much text")
		return "", false
	}
	if n.Kind != yaml.ScalarNode {
		c.fatal = true
		c.note(n, path, "a field's name is %s, but must be a string", c.describe(n))
		return "", false
	}
	if tag := n.ShortTag(); tag == tagNull || tag == tagBool || tag == tagBinary || saysBool(n) {
		c.fatal = true
		c.note(n, path, "the field's name %s is %s: put it in quotes", n.Value, c.describe(n))
		return "", false
	}
	return n.Value, true
}

// custom lets a type with its own JSON form judge the value.
func (c *checker) custom(n *yaml.Node, s *schema, path string, depth int) {
	start, told := c.out.Len(), len(c.errors)
	c.value(n, nil, path, depth)
	if len(c.errors) > told {
		return
	}
	if s.custom == quantityType && !sane(n) {
		c.out.Truncate(start)
		c.fail(n, path, "%s is too long or has too large an exponent for a quantity", c.quote(n))
		return
	}
	into := reflect.New(s.custom).Interface()
	if err := json.Unmarshal(c.out.Bytes()[start:], into); err != nil {
		c.out.Truncate(start)
		if c.secret {
			c.fail(n, path, "%s is not a valid %s", c.quote(n), customName(s.custom))
			return
		}
		c.fail(n, path, "%s is not a valid %s: %s", c.quote(n), customName(s.custom), err)
	}
}

var quantityType = reflect.TypeFor[resource.Quantity]()

var hugeExponent = regexp.MustCompile(`[eE][-+]?\d{3,}`)

// sane keeps texts from the quantity parser on which it would compute for
// minutes: it works out powers of ten however large they are.
func sane(n *yaml.Node) bool {
	n = yamltext.Deref(n)
	return len(n.Value) <= maxQuantity && !hugeExponent.MatchString(n.Value)
}

func writeJSON(out *bytes.Buffer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		// Strings, numbers and booleans always have a JSON form, but for the
		// numbers JSON doesn't know, which scalar refuses before.
		b = []byte("null")
	}
	out.Write(b)
}
