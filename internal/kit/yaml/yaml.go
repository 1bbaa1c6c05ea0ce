// Package yaml reads YAML and JSON strictly into Go values: a value that doesn't fit is an error with its line and
// path, and all errors are reported at once. Texts become nodes with line numbers (Parse), and nodes become values
// (Decoder). The callers choose the texts of errors and the meaning of values: package manifest for manifests, package
// config/document for configuration files.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Node is an element of a document, a yaml.Node of go.yaml.in/yaml/v3.
type Node = yaml.Node

// Error is an error in a text, to be shown to a person.
type Error struct {
	// Line is the line in the text, from 1; 0 when unknown.
	Line int
	// Path is the field, such as "spec.containers[0].image"; empty when the
	// error is about the document as a whole.
	Path string
	// Message describes the error and, if possible, its correction.
	Message string
}

// Error renders the error on one line: "line 12: spec.containers[0]: message".
func (e Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Parse returns a node for each document in the text that isn't empty. most limits the number of nodes: later documents
// aren't read. Lines count from first, the number of the text's first line. If there is an error, the documents before
// it are returned as well.
//
// JSON has its own parser because YAML doesn't support all of JSON's escapes. If the JSON parser fails, the text is
// still parsed as YAML in flow style.
func Parse(text []byte, first, most int) (nodes []*Node, problem *Error) {
	// The parser returns errors for invalid text. A defect in the parser must not crash the agent because of a file.
	defer func() {
		if r := recover(); r != nil {
			problem = &Error{Message: fmt.Sprintf("it can't be read as YAML: the parser failed: %v", r)}
		}
	}()
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if nodes, err := parseJSON(text, first, most); err == nil {
			return nodes, nil
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for len(nodes) < most {
		var doc Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nodes, inOurWords(err, first-1)
		}
		if n := content(&doc); n != nil {
			shift(n, first-1)
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// content is a document's only node; nil for an empty document.
func content(doc *Node) *Node {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil
	}
	n := doc.Content[0]
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value == "" {
		return nil
	}
	return n
}

// shift adds lines to the line numbers of n and its children.
func shift(n *Node, lines int) {
	if lines == 0 {
		return
	}
	n.Line += lines
	for _, part := range n.Content {
		shift(part, lines)
	}
}

// parserError matches the parser's errors and their prefix, the line number.
var parserError = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?((?s).*)$`)

func inOurWords(err error, before int) *Error {
	m := parserError.FindStringSubmatch(err.Error())
	line, bad := strconv.Atoi(m[1])
	if line += before; bad != nil {
		line = 0 // unknown
	}
	return &Error{Line: line, Message: "it can't be read as YAML: " + m[2]}
}

// Deref returns the node that an alias refers to, or else n itself. One step is enough, since the parser refuses an
// alias to an alias.
func Deref(n *Node) *Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Field returns the nodes of a mapping's key name and of its value; nil if n doesn't have that key, or isn't a
// mapping.
func Field(n *Node, name string) (key, value *Node) {
	n = Deref(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := Deref(n.Content[i]); k.Kind == yaml.ScalarNode && k.Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// LineOf follows a field's path ("spec.containers[0].image", "data[key]") from n, and returns the line of the last
// part that exists; 0 if none exists.
func LineOf(n *Node, path string) (line int) {
	n = Deref(n)
	for path != "" && n != nil {
		var step string
		step, path = nextStep(path)
		at, value := find(n, step)
		if at == nil {
			break
		}
		line, n = at.Line, Deref(value)
	}
	return line
}

// nextStep splits the first part off a path: "spec" from "spec.containers", "[0]" from "[0].ports", "[app]" from
// "[app]".
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

// find returns the node that names a step (a key, or a list's item itself) and the node to which it leads; nil if
// there is none.
func find(n *Node, step string) (at, value *Node) {
	key := strings.TrimSuffix(strings.TrimPrefix(step, "["), "]")
	if n.Kind != yaml.SequenceNode {
		return Field(n, key)
	}
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i >= len(n.Content) {
		return nil, nil
	}
	return n.Content[i], n.Content[i]
}

// Text returns the scalar at the end of a path of keys; "" if it doesn't exist or is null.
func Text(n *Node, keys ...string) string {
	n = Deref(n)
	for _, key := range keys {
		_, value := Field(n, key)
		n = Deref(value)
	}
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == TagNull {
		return ""
	}
	return n.Value
}
