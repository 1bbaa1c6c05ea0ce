package paths

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// YAML formats c as a configuration file: the fields in the order of declaration, each followed by the comment "#
// from " with the result of note, unless that is empty. Reading the output returns c. It masks no secrets (see
// Masked), but escapes control characters, so that the output is safe for terminals. note may be nil.
func YAML(c *v1beta1.KubeletConfiguration, note func(path string) string) []byte {
	if note == nil {
		note = func(string) string { return "" }
	}
	w := yamlWriter{note: note}
	w.fields("", "", show(c, note).fields)
	return w.out.Bytes()
}

type yamlWriter struct {
	out  bytes.Buffer
	note func(path string) string
}

// fields writes a mapping. first is the prefix of its first line, indent the prefix of the other lines: in a list,
// first ends in "- ".
func (w *yamlWriter) fields(first, indent string, fields []node) {
	for _, n := range fields {
		w.out.WriteString(first)
		first = indent
		w.out.WriteString(yamlText(n.name))
		w.out.WriteByte(':')
		w.value(n, indent)
	}
}

// value writes the value after a field's name.
func (w *yamlWriter) value(n node, indent string) {
	switch {
	case n.scalar != nil:
		w.end(n, " "+yamlScalar(n.scalar))
	case n.fields != nil && len(n.fields) == 0:
		w.end(n, " {}")
	case n.fields != nil:
		w.out.WriteByte('\n')
		w.fields(indent+"  ", indent+"  ", n.fields)
	case len(n.items) == 0:
		w.end(n, " []")
	default:
		w.end(n, "")
		w.list(n.items, indent)
	}
}

func (w *yamlWriter) list(items []node, indent string) {
	for _, item := range items {
		switch {
		case item.scalar != nil:
			w.out.WriteString(indent + "- " + yamlScalar(item.scalar) + "\n")
		case len(item.fields) > 0:
			w.fields(indent+"- ", indent+"  ", item.fields)
		default: // JSON is valid YAML
			w.out.WriteString(indent + "- " + string(item.json()) + "\n")
		}
	}
}

// end writes the end of a setting's line.
func (w *yamlWriter) end(n node, text string) {
	w.out.WriteString(text)
	if n.path != "" {
		if from := w.note(n.path); from != "" {
			w.out.WriteString("  # from " + terminal.Line(from))
		}
	}
	w.out.WriteByte('\n')
}

func yamlScalar(scalar json.RawMessage) string {
	var text string
	if err := json.Unmarshal(scalar, &text); err != nil || scalar[0] != '"' {
		return string(scalar) // numbers and booleans are the same in YAML
	}
	return yamlText(text)
}

// yamlText formats text on one line, quoted if necessary.
func yamlText(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.ToValidUTF8(text, "\uFFFD"),
		Style: yaml.DoubleQuotedStyle}
	var value any = &n
	if !strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		value = n.Value // the library quotes where it is necessary: "yes", "1:20"
	}
	out, err := yaml.Marshal(value)
	if err != nil {
		out = inJSON(text)
	}
	return string(terminal.JSON(bytes.TrimSuffix(out, []byte("\n"))))
}

// JSON formats c as a configuration file in JSON, with the same content as YAML.
func JSON(c *v1beta1.KubeletConfiguration) []byte {
	root := show(c, func(string) string { return "" })
	var out bytes.Buffer
	if err := json.Indent(&out, root.json(), "", "  "); err != nil {
		return root.json()
	}
	out.WriteByte('\n')
	return terminal.JSON(out.Bytes())
}

// json formats the node on one line.
func (n node) json() []byte {
	if n.scalar != nil {
		return n.scalar
	}
	var out bytes.Buffer
	between := func(i int) {
		if i > 0 {
			out.WriteByte(',')
		}
	}
	if n.fields == nil {
		out.WriteByte('[')
		for i, item := range n.items {
			between(i)
			out.Write(item.json())
		}
		out.WriteByte(']')
		return out.Bytes()
	}
	out.WriteByte('{')
	for i, f := range n.fields {
		between(i)
		out.Write(inJSON(f.name))
		out.WriteByte(':')
		out.Write(f.json())
	}
	out.WriteByte('}')
	return out.Bytes()
}
