package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// tree is a parsed document: nodes whose lines count from the chunk's start.
type tree struct {
	node *yaml.Node
	// offset is added to a node's line to have the line in the whole text.
	offset int
}

func (t *tree) line(n *yaml.Node) int {
	if n == nil || n.Line == 0 {
		return 0
	}
	return n.Line + t.offset
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
	if bytes.HasPrefix(bytes.TrimSpace(c.text), []byte("{")) {
		// JSON goes its own way because YAML doesn't know all of JSON's escapes.
		// A text that isn't JSON after all may still be YAML in flow style.
		if nodes, err := parseJSON(c.text); err == nil {
			return trees(nodes, c.line-1), nil
		}
	}
	nodes, err := yamltext.Parse(c.text, maxDocuments)
	if err != nil && err.Line > 0 {
		err.Line += c.line - 1
	}
	return trees(nodes, c.line-1), err
}

func trees(nodes []*yaml.Node, offset int) []*tree {
	out := make([]*tree, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, &tree{node: n, offset: offset})
	}
	return out
}

// parseJSON reads a stream of JSON values into the nodes YAML would have for
// them. Repeated keys are kept, so that they can be reported.
func parseJSON(text []byte) ([]*yaml.Node, error) {
	p := jsonParser{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1}
	p.dec.UseNumber()
	var nodes []*yaml.Node
	for len(nodes) < maxDocuments {
		tok, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		n, err := p.value(tok, 0)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

type jsonParser struct {
	text []byte
	dec  *json.Decoder
	// line is the number of the line that holds byte seen.
	line, seen int
}

// next returns the next token and moves line to where it ends, which for a
// JSON token is where it begins: no token spans lines.
func (p *jsonParser) next() (json.Token, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	end := int(p.dec.InputOffset())
	p.line += bytes.Count(p.text[p.seen:end], []byte{'\n'})
	p.seen = end
	return tok, nil
}

func (p *jsonParser) value(tok json.Token, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line}
	switch t := tok.(type) {
	case json.Delim:
		return n, p.children(n, t, depth)
	case string:
		n.Tag, n.Value, n.Style = tagString, t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = tagInt, t.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err != nil {
			n.Tag = tagFloat
		}
	case bool:
		n.Tag, n.Value = tagBool, strconv.FormatBool(t)
	default:
		n.Tag, n.Value = tagNull, "null"
	}
	return n, nil
}

// children reads what stands between the opening delimiter and its closing
// one: values, or in an object keys (which are tokens too) and values in turn.
func (p *jsonParser) children(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind, n.Tag, n.Style = yaml.SequenceNode, tagSeq, yaml.FlowStyle
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, tagMap
	}
	for {
		tok, err := p.next()
		if err != nil {
			return err
		}
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			return nil
		}
		child, err := p.value(tok, depth+1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
}
