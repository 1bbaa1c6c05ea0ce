// Package kubeletconfig reads a KubeletConfiguration (kubelet.config.k8s.io/v1beta1):
// strict decoding with lines, the documented defaults, validation, and a table
// that says which fields this build acts on.
//
// Its parts are used one after another: Decode the file, let flags overwrite
// fields, SetDefaults, Validate. See https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/.
package kubeletconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/kubelet/config/v1beta1"
)

// MaxSize bounds a configuration file, in bytes.
const MaxSize = 1 << 20

const (
	apiVersion = v1beta1.GroupName + "/v1beta1"
	kind       = "KubeletConfiguration"
)

// Error is one thing wrong with a configuration, told to a person.
type Error struct {
	// Line is the line in the file, from 1; 0 when unknown.
	Line int
	// Path is the field, such as "logging.verbosity"; empty when the error is
	// about the file as a whole.
	Path string
	// Message says what is wrong and what would be valid.
	Message string
}

// Error renders the error on one line: "line 12: logging.verbosity: message".
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

// Document is what a configuration file says, without any defaults.
type Document struct {
	Config v1beta1.KubeletConfiguration

	root *yaml.Node
}

// Decode reads one KubeletConfiguration, YAML or JSON. It is strict: unknown
// fields, fields given twice and wrong types are errors, and all of them are
// returned at once. A Document with errors holds what could be read.
func Decode(data []byte) (*Document, []Error) {
	doc := &Document{}
	root, err := parse(data)
	if err != nil {
		return doc, []Error{*err}
	}
	doc.root = root
	d := decoder{}
	d.value("", root, reflect.ValueOf(&doc.Config).Elem())
	return doc, append(d.errs, checkType(doc)...)
}

// Given reports whether the file names the field at path, whatever its value.
func (d *Document) Given(path string) bool {
	n, exact := d.find(path)
	return n != nil && exact
}

// LineOf returns the line where the field at path is given, or that of its
// nearest parent ("logging" for "logging.verbosity"); 0 when the file says
// nothing about it. Indexes and map keys in brackets are left out of account.
func (d *Document) LineOf(path string) int {
	n, _ := d.find(path)
	if n == nil || n == d.root {
		return 0
	}
	return n.Line
}

// find walks down path as far as the document goes; exact tells whether it got
// to the end. What it returns is the key's node, since that is the line a
// person looks for.
func (d *Document) find(path string) (node *yaml.Node, exact bool) {
	if d == nil || d.root == nil {
		return nil, false
	}
	node, value := d.root, d.root
	for part := range strings.SplitSeq(path, ".") {
		part, _, _ = strings.Cut(part, "[")
		key, child := lookup(resolve(value), part)
		if key == nil {
			return node, false
		}
		node, value = key, child
	}
	return node, true
}

func lookup(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// resolve follows an alias to what it stands for. The parser refuses an alias
// to an alias, so one step is enough.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// parse reads the file's only document, which must be a mapping.
func parse(data []byte) (root *yaml.Node, problem *Error) {
	// The parser reports its own failures as errors; a defect in it must come
	// out as an error too, not as a stack trace.
	defer func() {
		if r := recover(); r != nil {
			root, problem = nil, &Error{Message: fmt.Sprintf("it can't be read as YAML: the parser failed: %v", r)}
		}
	}()
	if len(data) > MaxSize {
		return nil, &Error{Message: fmt.Sprintf("it has %d bytes; at most %d are read", len(data), MaxSize)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var docs []*yaml.Node
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, yamlError(err)
		}
		if !empty(&n) {
			docs = append(docs, n.Content[0])
		}
	}
	switch {
	case len(docs) == 0:
		return nil, &Error{Message: fmt.Sprintf("it is empty; it should start with \"apiVersion: %s\" and \"kind: %s\"", apiVersion, kind)}
	case len(docs) > 1:
		return nil, &Error{Line: docs[1].Line, Message: "a second document begins here; the file must hold exactly one, so that nothing in it is left out"}
	case docs[0].Kind != yaml.MappingNode:
		return nil, &Error{Line: docs[0].Line, Message: "it is not a mapping of fields to values"}
	}
	return docs[0], nil
}

func empty(doc *yaml.Node) bool {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return true
	}
	n := doc.Content[0]
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func yamlError(err error) *Error {
	// The parser prefixes its messages with the line, as text.
	m := regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?((?s).*)$`).FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1]) // no number: unknown, 0
	return &Error{Line: line, Message: "it can't be read as YAML: " + m[2]}
}

// checkType makes sure that the file is of the kind and version it is read as.
func checkType(d *Document) []Error {
	var errs []Error
	for _, f := range []struct{ path, got, want string }{
		{"apiVersion", d.Config.APIVersion, apiVersion},
		{"kind", d.Config.Kind, kind},
	} {
		switch {
		case f.got == f.want:
		case f.got == "" && !d.Given(f.path):
			errs = append(errs, Error{Path: f.path, Message: fmt.Sprintf("it is missing; it must be %q", f.want)})
		default:
			errs = append(errs, Error{Line: d.LineOf(f.path), Path: f.path, Message: fmt.Sprintf("%q is not known here; it must be %q", f.got, f.want)})
		}
	}
	return errs
}
