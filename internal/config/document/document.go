// Package document reads KubeletConfiguration files (kubelet.config.k8s.io/v1beta1) strictly, and merges the file of
// --config with the drop-ins of --config-dir. It records the origin of each setting, but doesn't interpret values.
//
// See https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ for the fields and
// https://kubernetes.io/docs/reference/node/kubelet-config-directory-merging/ for merging.
package document

import (
	"fmt"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// MaxSize is the maximum size of a configuration file in bytes.
const MaxSize = 1 << 20

const kindName = "KubeletConfiguration"

// Error is one error in a configuration file.
type Error = yaml.Error

// Document is the content of a configuration file, without defaults.
type Document struct {
	Config v1beta1.KubeletConfiguration

	root  *yaml.Node
	given origins
}

// Decode reads one KubeletConfiguration, YAML or JSON; drop-ins are the same kind of document. It is strict: unknown
// fields, duplicate fields and wrong types are errors, which it returns all at once. A field that is null counts as
// unset. A Document with errors has the values that could be read.
func Decode(data []byte) (*Document, []Error) {
	doc := &Document{given: origins{}}
	root, err := parse(data)
	if err != nil {
		return doc, []Error{*err}
	}
	doc.root = root
	d := decoder{given: doc.given}
	d.lay(root, &doc.Config)
	if kind := doc.Config.Kind; kind != "" && kind != kindName {
		return doc, checkType(doc) // a file of another kind has other fields, so errors about fields are useless
	}
	return doc, append(d.errs, checkType(doc)...)
}

// Given reports whether the file sets the field at path, to any value.
func (d *Document) Given(path string) bool {
	if d == nil {
		return false
	}
	_, ok := d.given[path]
	return ok
}

// LineOf returns the line of the field at path. If the file doesn't set the field, it returns the line of the field's
// nearest parent ("logging" for "logging.verbosity"), and 0 if the file has no parent either.
func (d *Document) LineOf(path string) int {
	if d == nil {
		return 0
	}
	at, _ := d.given.nearest(path)
	return at.Line
}

// parse parses the file's only document, which must be a mapping.
func parse(data []byte) (*yaml.Node, *Error) {
	if len(data) > MaxSize {
		return nil, &Error{Message: fmt.Sprintf("it has %d bytes; at most %d are read", len(data), MaxSize)}
	}
	docs, err := yaml.Parse(data, 1, 2) // a second document is an error
	if err != nil {
		clear := yaml.Explain(*err, data)
		return nil, &clear
	}
	start := fmt.Sprintf("it should start with \"apiVersion: %s\" and \"kind: %s\"", v1beta1.SchemeGroupVersion,
		kindName)
	switch {
	case len(docs) == 0:
		return nil, &Error{Message: "it is empty; " + start}
	case len(docs) > 1:
		return nil, &Error{Line: docs[1].Line,
			Message: "a second document begins here; the file must hold exactly one, so that nothing in it is left out"}
	case docs[0].Kind != goyaml.MappingNode:
		return nil, &Error{Line: docs[0].Line, Message: "it is not a mapping of fields to values; " + start}
	}
	return docs[0], nil
}

// checkType checks the apiVersion and kind of the file.
func checkType(d *Document) []Error {
	var errs []Error
	for _, f := range []struct{ path, got, want string }{
		{"apiVersion", d.Config.APIVersion, v1beta1.SchemeGroupVersion.String()},
		{"kind", d.Config.Kind, kindName},
	} {
		switch {
		case f.got == f.want:
		case !d.Given(f.path):
			errs = append(errs, Error{Path: f.path, Message: fmt.Sprintf("it is missing; it must be %q", f.want)})
		default:
			errs = append(errs, Error{Line: d.LineOf(f.path), Path: f.path,
				Message: fmt.Sprintf("%q isn't supported; it must be %q", f.got, f.want)})
		}
	}
	return errs
}
