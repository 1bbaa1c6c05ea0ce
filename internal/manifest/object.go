package manifest

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// object is one JSON object being written.
type object struct {
	schema *schema
	path   string
	depth  int
	// seen holds the fields met so far, known or not, by name.
	seen map[string]*yaml.Node
	// written is whether a field was written, so that the next needs a comma.
	written bool
}

func (c *checker) mapping(n *yaml.Node, s *schema, path string, depth int) {
	o := object{schema: s, path: path, depth: depth, seen: make(map[string]*yaml.Node, len(n.Content)/2)}
	c.out.WriteByte('{')
	c.fields(&o, n, false)
	c.out.WriteByte('}')
}

// fields writes the fields of n into o. When they are merged ("<<"), those o
// has already win; else they are given twice.
func (c *checker) fields(o *object, n *yaml.Node, merged bool) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		keyNode, value := n.Content[i], n.Content[i+1]
		if keyNode.ShortTag() == tagMerge {
			merges = append(merges, value)
			continue
		}
		key, ok := c.key(keyNode, o.path)
		if !ok {
			continue
		}
		if before, ok := o.seen[key]; ok {
			if !merged {
				c.note(keyNode, o.schema.childPath(o.path, key), "is given twice (first on line %d)", c.tree.line(before))
			}
			continue
		}
		o.seen[key] = keyNode
		c.field(o, keyNode, key, value)
	}
	for _, m := range merges {
		c.merge(o, m)
	}
}

func (c *checker) field(o *object, keyNode *yaml.Node, key string, value *yaml.Node) {
	s, known := o.schema.child(key)
	if !known {
		c.unknown(keyNode, o.schema, o.path, key)
		return
	}
	if o.written {
		c.out.WriteByte(',')
	}
	o.written = true
	writeJSON(&c.out, key)
	c.out.WriteByte(':')
	c.value(value, s, o.schema.childPath(o.path, key), o.depth+1)
}

// merge adds the fields of what stands behind "<<": an object, an alias of
// one, or a list of those (https://yaml.org/type/merge.html).
func (c *checker) merge(o *object, n *yaml.Node) {
	if !c.pay(n) || len(c.active) > maxDepth {
		c.fatal = true
		c.note(n, o.path, "its aliases expand to too much text")
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		if slices.Contains(c.active, n.Alias) {
			c.fatal = true
			c.note(n, o.path, "alias *%s contains itself", n.Value)
			return
		}
		c.active = append(c.active, n.Alias)
		c.merge(o, n.Alias)
		c.active = c.active[:len(c.active)-1]
	case yaml.MappingNode:
		c.fields(o, n, true)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			c.merge(o, item)
		}
	default:
		c.fatal = true
		c.note(n, o.path, `"<<" wants an object to merge, but has %s`, c.describe(n))
	}
}
