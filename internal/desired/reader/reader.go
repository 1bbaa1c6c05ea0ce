// Package reader turns the text of a manifest into complete static pods, and the
// objects beside them: it decodes, gives identity, fills in defaults and validates, in
// that order.
package reader

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/desired/edit"
	"github.com/deckhand-node/deckhand/internal/desired/static"
	"github.com/deckhand-node/deckhand/internal/manifest"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Rules are what makes a decoded pod complete and judges it. They change nothing
// but the pod that SetDefaults is given.
type Rules struct {
	// SetDefaults fills in what the manifest left out, as an API server would.
	SetDefaults func(*v1.Pod)
	// Validate returns everything that is wrong with a complete pod.
	Validate func(*v1.Pod) field.ErrorList
	// QOSClass is the quality of service class of a pod that has its defaults. An edit
	// that would change it isn't applied in place.
	QOSClass func(*v1.Pod) v1.PodQOSClass
}

// Reader reads manifests for one source on one node. It has no state; safe for
// concurrent use if its rules are.
type Reader struct {
	node   string
	source pod.Source
	rules  Rules
}

// New returns a reader of a source's manifests on the named node.
func New(node string, source pod.Source, rules Rules) *Reader {
	return &Reader{node: node, source: source, rules: rules}
}

// Node is the name of the node this reader reads for.
func (r *Reader) Node() string { return r.node }

// Source is the source this reader reads for.
func (r *Reader) Source() pod.Source { return r.source }

// Doc is one document of a manifest: a pod or another object as its author wrote it, or
// what is wrong with it.
type Doc struct {
	// Number is the position in the manifest, from 1.
	Number int
	ID
	// Canonical and Hash are the canonical form (see package static) and content
	// hash. Empty if the document can't be read.
	Canonical []byte
	Hash      string
	// Errors is everything that is wrong, one line each; empty for a document that
	// is good as far as is known before Complete.
	Errors []string

	// written or object is what the author wrote.
	written *v1.Pod
	object  objects.Object
	lineOf  func(path string) int
}

// ID says what a document is about. No two documents may be about the same.
type ID struct {
	// Kind is empty for a pod, and for a document of which it isn't known.
	Kind objects.Kind
	// Name is "namespace/name" as written (without the node's name), or "name" where the
	// kind has no namespace, as far as it can be read.
	Name string
}

// Object is the name of the object that it is about, unless it is about a pod or less than a
// name is known.
func (id ID) Object() (key objects.Key, ok bool) {
	if !id.Kind.Known() || id.Name == "" {
		return objects.Key{}, false
	}
	if !id.Kind.Namespaced() {
		return objects.Key{Kind: id.Kind, Name: id.Name}, true
	}
	namespace, name, ok := strings.Cut(id.Name, "/")
	return objects.Key{Kind: id.Kind, Namespace: namespace, Name: name}, ok
}

// String is the ID as a person reads it: "pod default/web", "ConfigMap default/app".
func (id ID) String() string {
	if id.Kind == "" {
		return "pod " + id.Name
	}
	return string(id.Kind) + " " + id.Name
}

// ErrBlank is what Read returns for a text that says nothing. Writing a file often
// begins with truncating it, so this isn't taken for the wish to run nothing.
var ErrBlank = errors.New("it holds nothing but blanks or comments; to have its pods removed, delete it")

// Read returns the documents of a manifest, in order. It fails only with ErrBlank.
// A list without items is no document, and no error.
func (r *Reader) Read(data []byte) ([]Doc, error) {
	if blank(data) {
		return nil, ErrBlank
	}
	var docs []Doc
	for _, d := range manifest.Decode(data) {
		docs = append(docs, r.doc(d))
	}
	return docs, nil
}

// Restore reads a pod back from its canonical form.
func (r *Reader) Restore(canonical []byte) (Doc, error) {
	p, err := parse(canonical)
	if err != nil {
		return Doc{}, err
	}
	d := restored()
	if err := r.take(&d, p); err != nil {
		return Doc{}, err
	}
	return d, nil
}

func restored() Doc {
	return Doc{Number: 1, lineOf: func(string) int { return 0 }}
}

func parse(canonical []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := json.Unmarshal(canonical, p); err != nil {
		return nil, fmt.Errorf("a stored pod can't be read: %w", err)
	}
	return p, nil
}

// InPlace reports whether the pod that was given in canonical form can become the
// one that d asks for while it runs. If not, why says what stands in the way: see edit.InPlace.
// It is for documents without errors.
func (r *Reader) InPlace(canonical []byte, d Doc) (ok bool, why string) {
	old, err := parse(canonical)
	if err != nil {
		return false, err.Error()
	}
	return edit.InPlace(old, d.written, edit.Rules{SetDefaults: r.rules.SetDefaults, QOSClass: r.rules.QOSClass})
}

// Complete returns the static pod that d asks for, or everything that is wrong
// with it, one line each. It is for documents of pods without errors.
func (r *Reader) Complete(d Doc, v static.Version) (*v1.Pod, []string) {
	p := d.written.DeepCopy()
	invalid := static.ValidateUID(p)
	id := static.Identity{Node: r.node, Source: r.source, Hash: d.Hash, Version: v}
	id.Apply(p)
	r.rules.SetDefaults(p)
	invalid = append(invalid, r.rules.Validate(p)...)
	if len(invalid) > 0 {
		return nil, render(d.locate(invalid))
	}
	return p, nil
}

func (r *Reader) doc(m manifest.Document) Doc {
	d := Doc{Number: m.Index, ID: ID{m.Kind, m.Name}, lineOf: m.LineOf}
	wrong := m.Errors
	var err error
	switch {
	case m.Pod != nil:
		err = r.take(&d, m.Pod)
	case m.Object != nil:
		err = r.takeObject(&d, m.Object)
	}
	if err != nil {
		wrong = append(wrong, manifest.Error{Line: m.Line, Message: err.Error()})
	}
	if len(wrong) == 0 {
		return d
	}
	d.Errors = render(wrong)
	if d.Canonical != nil {
		// It can't be used, but everything about it shall be told at once.
		d.Errors = append(d.Errors, r.invalid(d)...)
	}
	return d
}

// invalid returns what is wrong with a document that can be read.
func (r *Reader) invalid(d Doc) (wrong []string) {
	if d.object != nil {
		_, wrong = r.CompleteObject(d, time.Time{})
		return wrong
	}
	_, wrong = r.Complete(d, static.Version{})
	return wrong
}

// take makes p the pod that d is about.
func (r *Reader) take(d *Doc, p *v1.Pod) error {
	static.Clean(p)
	canonical, err := static.Canonical(p)
	if err != nil {
		return err
	}
	if p.Name != "" {
		d.Name = p.Namespace + "/" + p.Name
	}
	d.written, d.Canonical, d.Hash = p, canonical, static.Hash(canonical, r.node)
	return nil
}

// maxErrors is how many errors of one document are told. To find the line of each of
// hundreds of thousands would take minutes.
const maxErrors = 100

// locate finds the lines where fields stand.
func (d Doc) locate(invalid field.ErrorList) []manifest.Error {
	told := invalid[:min(len(invalid), maxErrors)]
	out := make([]manifest.Error, 0, len(told)+1)
	for _, e := range told {
		out = append(out, manifest.Error{Line: d.lineOf(e.Field), Path: e.Field, Message: e.ErrorBody()})
	}
	slices.SortStableFunc(out, func(a, b manifest.Error) int { return cmp.Compare(a.Line, b.Line) })
	if more := len(invalid) - len(told); more > 0 {
		out = append(out, manifest.Error{Message: fmt.Sprintf("there is more wrong with this document (%d fields); only the beginning is told", more)})
	}
	return out
}

func render(wrong []manifest.Error) []string {
	lines := make([]string, 0, len(wrong))
	for _, e := range wrong {
		lines = append(lines, e.Error())
	}
	return lines
}

// blank reports whether the text has no line but empty ones, comments and
// document separators.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(strings.TrimPrefix(string(line), "\ufeff"))
		if text != "" && text != "---" && text != "..." && text[0] != '#' && text[0] != '%' {
			return false
		}
	}
	return true
}
