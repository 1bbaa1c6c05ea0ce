// Package kubeletconfig reads a KubeletConfiguration (kubelet.config.k8s.io/v1beta1):
// strict decoding with lines, the documented defaults, validation, and a table
// that says which fields this build acts on.
//
// Its parts are used one after another: Decode the file, let flags overwrite
// fields, SetDefaults, Validate. See https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/.
package kubeletconfig

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

// MaxSize bounds a configuration file, in bytes.
const MaxSize = 1 << 20

const (
	apiVersion = v1beta1.GroupName + "/v1beta1"
	kind       = "KubeletConfiguration"
)

// Error is one thing wrong with a configuration.
type Error = yamltext.Error

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
		key, child := yamltext.Field(value, part)
		if key == nil {
			return node, false
		}
		node, value = key, child
	}
	return node, true
}

// parse reads the file's only document, which must be a mapping.
func parse(data []byte) (*yaml.Node, *Error) {
	if len(data) > MaxSize {
		return nil, &Error{Message: fmt.Sprintf("it has %d bytes; at most %d are read", len(data), MaxSize)}
	}
	docs, err := yamltext.Parse(data, 2) // the second one is an error
	if err != nil {
		return nil, err
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
