// Package manifest reads manifests of pods, and of the objects that pods refer to:
// text, YAML or JSON, with one or many documents in it. It is strict: unknown fields, fields
// given twice and wrong types are errors, and all of them are reported at once, each with its
// line. No error holds a value of a Secret.
//
// An error in a document doesn't affect other documents: the text is first split at the document separators, and
// each piece is read on its own. Work and memory are bounded for any input (see the limits in limits.go).
//
// The package returns only the content of a manifest. It neither fills in defaults nor checks values: package
// pod/spec does that.
package manifest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Document is one pod or other object of a manifest, or the errors of a document that can't be read. A List,
// PodList, ConfigMapList and so on yields one Document for each of its items.
type Document struct {
	// Index is the position of the document in the text, from 1. Documents that are empty or only have comments
	// don't count.
	Index int
	// Line is the first line of the document in the text, from 1.
	Line int
	// Pod or Object is the content of the document, without any defaults. Both are nil if the document can't be
	// read. If Errors only has errors about unknown or repeated fields, Pod or Object is set nevertheless, so that
	// it can be validated, too, and all errors are reported at once.
	Pod    *v1.Pod
	Object object.Object
	// Kind is the kind of an object other than a pod, as far as it can be read, even from a broken document. It is
	// empty for a pod, for an unknown kind, and if no kind can be found.
	Kind object.Kind
	// Name is the object's "namespace/name", or "name" for a kind without namespaces, as far as that can be read.
	// The namespace is "default" if the document has none. Name is empty if no name can be found.
	Name string
	// Errors are all errors of the document, sorted by line. A document with errors must not be used.
	Errors []Error

	root *yaml.Node
}

// Error is one error in a document, with its line.
type Error = yaml.Error

// LineOf returns the line in the text where the field at path is given, for example
// "spec.containers[0].ports[1].hostPort" or "metadata.labels[app]", as k8s.io/apimachinery's field.Path prints them.
// For a missing field it returns the line of its nearest parent, and 0 if there is none.
func (d *Document) LineOf(path string) int {
	if d.root == nil {
		return d.Line
	}
	return lineOf(d.root, path)
}

// lineOf returns the line of the field at this path below n. If the field is missing, it returns the line of its
// nearest parent.
func lineOf(n *yaml.Node, path string) int {
	if line := yaml.LineOf(n, path); line != 0 {
		return line
	}
	return n.Line
}

// Decode reads all documents of a manifest. Text without any document (empty, or comments only) yields none. Decode
// has no error of its own: each error is in the Errors of the document that it is about. It is safe for concurrent
// use.
func Decode(data []byte) []Document {
	d := decoder{}
	text, err := plainText(data)
	if err != nil {
		d.add(Document{Line: err.Line, Errors: []Error{*err}})
		return d.docs
	}
	for _, c := range split(text) {
		if d.full() {
			break
		}
		d.chunk(c)
	}
	return d.docs
}

// decoder collects the documents of one text.
type decoder struct {
	docs []Document
	// aliasBudget is how many bytes YAML aliases may still add to the current document. All items of a list share
	// it.
	aliasBudget int
}

// full reports whether the maximum number of documents is exceeded. The error of the last document says so.
func (d *decoder) full() bool { return len(d.docs) > maxDocuments }

func (d *decoder) add(doc Document) {
	if d.full() {
		return
	}
	slices.SortStableFunc(doc.Errors, func(a, b Error) int { return a.Line - b.Line })
	doc.Index = len(d.docs) + 1
	if doc.Index > maxDocuments {
		doc = Document{Index: doc.Index, Line: doc.Line, Errors: []Error{{
			Line: doc.Line,
			Message: fmt.Sprintf("more than %d documents in one manifest: the rest is not read; use several files",
				maxDocuments),
		}}}
	}
	d.docs = append(d.docs, doc)
}

// chunk reads the documents of one piece of text. A piece mostly has one document. It has more if it is a stream of
// JSON values, or if it contains separators that split doesn't recognize.
func (d *decoder) chunk(c chunk) {
	roots, err := c.parse()
	for _, root := range roots {
		d.root(root)
	}
	if err == nil {
		return
	}
	kind := guessKind(c.text)
	d.add(Document{Line: c.firstLine(), Kind: kind, Name: guessName(kind, c.text), Errors: []Error{*err}})
}
