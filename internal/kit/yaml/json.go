package yaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	yaml "go.yaml.in/yaml/v3"
)

// parseJSON reads a stream of JSON values into the nodes that the YAML parser would return for them. Repeated keys
// are kept, so that they can be reported.
func parseJSON(text []byte, first, most int) ([]*Node, error) {
	p := jsonParser{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: first}
	p.dec.UseNumber()
	var nodes []*Node
	for len(nodes) < most {
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

// next returns the next token and moves line to the token's line: no JSON token spans lines.
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

func (p *jsonParser) value(tok json.Token, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	n := &Node{Kind: yaml.ScalarNode, Line: p.line}
	switch t := tok.(type) {
	case json.Delim:
		return n, p.children(n, t, depth)
	case string:
		n.Tag, n.Value, n.Style = TagString, t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = TagInt, t.String()
		_, small := strconv.ParseInt(n.Value, 10, 64)
		_, large := strconv.ParseUint(n.Value, 10, 64)
		if small != nil && large != nil {
			n.Tag = TagFloat
		}
	case bool:
		n.Tag, n.Value = TagBool, strconv.FormatBool(t)
	default:
		n.Tag, n.Value = TagNull, "null"
	}
	return n, nil
}

// children reads the values between an opening delimiter and its closing delimiter. In an object, these are keys (which
// are tokens, too) and values in turn.
func (p *jsonParser) children(n *Node, open json.Delim, depth int) error {
	n.Kind, n.Tag, n.Style = yaml.SequenceNode, "!!seq", yaml.FlowStyle
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
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
