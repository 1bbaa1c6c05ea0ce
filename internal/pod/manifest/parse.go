package manifest

import "github.com/deckhand-node/deckhand/internal/kit/yaml"

// tree is a parsed document: nodes whose lines count from the chunk's start.
type tree struct {
	node *yaml.Node
	// offset is added to a node's line to have the line in the whole text.
	offset int
}

// lineOf is the line of a field, or of the last part of its path that is there.
func (t *tree) lineOf(path string) int {
	line := yaml.LineOf(t.node, path)
	if line == 0 {
		line = yaml.Deref(t.node).Line
	}
	return line + t.offset
}

// parse reads the nodes of a chunk. What could be read before an error is
// returned beside it.
func parse(c chunk) ([]*tree, *Error) {
	if err := checkText(c); err != nil {
		return nil, err
	}
	if err := checkSize(c); err != nil {
		return nil, err
	}
	nodes, err := yaml.Parse(c.text, maxDocuments)
	if err != nil && err.Line > 0 {
		err.Line += c.line - 1
	}
	trees := make([]*tree, 0, len(nodes))
	for _, n := range nodes {
		trees = append(trees, &tree{node: n, offset: c.line - 1})
	}
	return trees, err
}
