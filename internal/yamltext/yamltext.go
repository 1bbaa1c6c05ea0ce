// Package yamltext reads YAML into nodes that know their lines, and tells what is
// wrong with a text by line. What the nodes have to say is for others to judge:
// manifests (package manifest) and configuration files (package config/document).
package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is one thing wrong with a text, told to a person.
type Error struct {
	// Line is the line in the text, from 1; 0 when unknown.
	Line int
	// Path is the field, such as "spec.containers[0].image"; empty when the
	// error is about the document as a whole.
	Path string
	// Message says what is wrong and, where that is clear, what to do.
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

// Parse returns the node of each document in the text that isn't empty, the
// first most of them. Lines count from the start of the text. What could be read
// before an error is returned beside it.
func Parse(text []byte, most int) (nodes []*yaml.Node, problem *Error) {
	// The parser reports its own failures as errors; a defect in it must not
	// take the agent down because of a file.
	defer func() {
		if r := recover(); r != nil {
			problem = &Error{Message: fmt.Sprintf("it can't be read as YAML: the parser failed: %v", r)}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for len(nodes) < most {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nodes, inOurWords(err)
		}
		if n := content(&doc); n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// content is a document's only node; nil for an empty document.
func content(doc *yaml.Node) *yaml.Node {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil
	}
	n := doc.Content[0]
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value == "" {
		return nil
	}
	return n
}

// said is how the parser words its errors: with the line, as text, in front.
var said = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?((?s).*)$`)

func inOurWords(err error) *Error {
	m := said.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1]) // no number: unknown, 0
	return &Error{Line: line, Message: "it can't be read as YAML: " + m[2]}
}

// Deref is the node that n stands for: what an alias names, or else n itself. One
// step is enough, since the parser refuses an alias to an alias.
func Deref(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Field returns the nodes of the key and of the value that a mapping has by this
// name; nil if it has none, or isn't a mapping.
func Field(n *yaml.Node, name string) (key, value *yaml.Node) {
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
