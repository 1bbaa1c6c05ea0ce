package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineOf follows a field path as far as it goes and returns the line of the
// last part it found.
func (t *tree) lineOf(path string) int {
	n := deref(t.node)
	line := t.line(n)
	for path != "" && n != nil {
		var step string
		step, path = nextStep(path)
		at, value := find(n, step)
		if at == nil {
			break
		}
		if l := t.line(at); l > 0 {
			line = l
		}
		n = deref(value)
	}
	return line
}

// nextStep cuts the first part from a path: "spec" from "spec.containers",
// "[0]" from "[0].ports", "[app]" from "[app]".
func nextStep(path string) (step, rest string) {
	path = strings.TrimPrefix(path, ".")
	if strings.HasPrefix(path, "[") {
		if end := strings.IndexByte(path, ']'); end > 0 {
			return path[:end+1], path[end+1:]
		}
		return path, ""
	}
	if end := strings.IndexAny(path, ".["); end > 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// find returns the node that names a step (a key, or a list's item itself) and
// the node it leads to; nil when there is none.
func find(n *yaml.Node, step string) (at, value *yaml.Node) {
	key := strings.TrimSuffix(strings.TrimPrefix(step, "["), "]")
	switch n.Kind {
	case yaml.SequenceNode:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(n.Content) {
			return nil, nil
		}
		return n.Content[i], n.Content[i]
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := deref(n.Content[i]); k != nil && k.Kind == yaml.ScalarNode && k.Value == key {
				return n.Content[i], n.Content[i+1]
			}
		}
	}
	return nil, nil
}

// deref follows an alias. It doesn't follow aliases of aliases for ever: YAML
// has none, an alias always names a real node.
func deref(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// text returns the scalar at the end of a path of keys, or "".
func text(n *yaml.Node, keys ...string) string {
	n = deref(n)
	for _, key := range keys {
		if n == nil {
			return ""
		}
		_, value := find(n, key)
		n = deref(value)
	}
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == tagNull {
		return ""
	}
	return n.Value
}
