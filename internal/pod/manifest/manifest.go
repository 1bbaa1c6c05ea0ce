// Package manifest reads manifests of pods, and of the objects that pods refer to:
// text, YAML or JSON, with one or many documents in it. It is strict: unknown fields, fields
// given twice and wrong types are errors, and all of them are reported at once, each with its
// line. No error holds a value of a Secret.
//
// A broken document doesn't spoil its neighbours: the text is cut at the
// document separators first, and each piece is read on its own. Work and memory
// are bounded for any input (see the limits in limits.go).
//
// The package says what a manifest says, no more: it neither fills in defaults
// nor checks values. That is the work of package pod/spec.
package manifest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Document is one pod or other object of a manifest, or the errors of one that can't be read. A List, PodList,
// ConfigMapList and so on yields one Document for each of its items.
type Document struct {
	// Index is the position among the documents of the text, from 1. Empty
	// documents and those of comments alone don't count.
	Index int
	// Line is the first line of the document in the text, from 1.
	Line int
	// Pod or Object is the content of the document, without any defaults. Both are nil when the document can't be read
	// as anything at all. Where Errors holds nothing worse than unknown or repeated fields, one is set beside them, so
	// that it can be validated too and all errors are reported at once.
	Pod    *v1.Pod
	Object object.Object
	// Kind is the kind of an object other than a pod, as far as it can be read, even from a broken document. It is
	// empty for a pod, an unknown kind and where no kind can be found.
	Kind object.Kind
	// Name is "namespace/name", or "name" where the kind has no namespace, as far as
	// that can be read. The namespace is "default" where none is given. It is empty
	// when no name can be found.
	Name string
	// Errors holds everything that is wrong, by line. A document with errors
	// must not be run.
	Errors []Error

	root *yaml.Node
}

// Error is one thing wrong with a document.
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

// lineOf is the line of a field of n, or of the last part of its path that is there.
func lineOf(n *yaml.Node, path string) int {
	if line := yaml.LineOf(n, path); line != 0 {
		return line
	}
	return n.Line
}

// Decode reads all documents of a manifest. Text without any document (empty, or comments only) yields none. It never
// fails as a whole: errors are in the Errors of the document that they concern. Safe for concurrent use.
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
	// aliasBudget is how many bytes aliases may still add to the current document, in all items of a list.
	aliasBudget int
}

// full tells whether no more documents are taken; the last one says so.
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

// chunk reads the documents of one piece of text. Mostly that is one; only a
// stream of JSON values, or separators the line-wise cutting can't see, give more.
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
