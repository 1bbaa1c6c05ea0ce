package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// lineOf follows a field path as far as it goes and returns the line of the
// last part it found.
func (t *tree) lineOf(path string) int {
	n := yamltext.Deref(t.node)
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
		n = yamltext.Deref(value)
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
		return yamltext.Field(n, key)
	}
	return nil, nil
}

// text returns the scalar at the end of a path of keys, or "".
func text(n *yaml.Node, keys ...string) string {
	n = yamltext.Deref(n)
	for _, key := range keys {
		if n == nil {
			return ""
		}
		_, value := find(n, key)
		n = yamltext.Deref(value)
	}
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == tagNull {
		return ""
	}
	return n.Value
}
