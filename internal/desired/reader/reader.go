// Package reader turns the text of a manifest into complete static pods, and the objects beside
// them: it decodes, gives identity, fills in defaults and validates, in that order.
//
// A new pod's UID is the one that the kubelet would give it: see uid.go. A changed text is
// another pod, unless it is applied in place: see Version. A text is the same if its content hash is,
// which is made before defaults are filled in: a release of deckhand with other defaults doesn't recreate the
// pods of the release before. Objects get a UID and a creation
// time that stay while the object does, and a resource version that changes with what it says.
package reader

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/manifest"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Rules are what makes a decoded pod complete and validates it. They change nothing
// but the pod that SetDefaults is given.
type Rules struct {
	// SetDefaults fills in what the manifest left out, as an API server would.
	SetDefaults func(*v1.Pod)
	// Validate returns everything that is wrong with a complete pod.
	Validate func(*v1.Pod) field.ErrorList
	// QOSClass is the quality of service class of a pod that has its defaults. An edit
	// that would change it isn't applied in place.
	QOSClass func(*v1.Pod) v1.PodQOSClass
	// Refuse returns what a pod, as it is written, may not ask for on this node though it is valid; nil refuses
	// nothing. It counts for each text that is read, also for one that was taken before.
	Refuse func(*v1.Pod) field.ErrorList
	// Recreate says why no edit is applied in place; empty if edits are.
	Recreate string
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
	// Canonical and Hash are the canonical form (see Canonical) and content
	// hash. Empty if the document can't be read.
	Canonical []byte
	Hash      string
	// Errors is everything that is wrong, one line each; empty for a document that
	// is good as far as is known before Complete.
	Errors []string

	// Written is the pod as its author wrote it, read-only; nil for a document of another kind.
	Written *v1.Pod

	// asWritten is Written with what Clean removed; UIDs are made of it.
	asWritten *v1.Pod
	// object is what the author wrote of another kind.
	object object.Object
	// lineOf is nil for a document that wasn't read from a text.
	lineOf func(path string) int
}

// ID says what a document is about. No two documents may be about the same.
type ID struct {
	// Kind is empty for a pod, and for a document of which it isn't known.
	Kind object.Kind
	// Name is "namespace/name" as written (without the node's name), or "name" where the
	// kind has no namespace, as far as it can be read.
	Name string
}

// Object is the name of the object that it is about, unless it is about a pod or less than a
// name is known.
func (id ID) Object() (key object.Key, ok bool) {
	if !id.Kind.Known() || id.Name == "" {
		return object.Key{}, false
	}
	if !id.Kind.Namespaced() {
		return object.Key{Kind: id.Kind, Name: id.Name}, true
	}
	namespace, name, ok := strings.Cut(id.Name, "/")
	return object.Key{Kind: id.Kind, Namespace: namespace, Name: name}, ok
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
var ErrBlank = errors.New("it is empty, or has only comments; to have its pods removed, delete it")

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
	p := &v1.Pod{}
	if err := json.Unmarshal(canonical, p); err != nil {
		return Doc{}, fmt.Errorf("a stored pod can't be read: %w", err)
	}
	d := Doc{Number: 1}
	if err := r.take(&d, p); err != nil {
		return Doc{}, err
	}
	return d, nil
}

// InPlace reports whether a pod can become another while it runs, both in canonical form
// (Doc.Canonical). If not, why says what stands in the way: see InPlace.
func (r *Reader) InPlace(old, new []byte) (ok bool, why string) {
	if r.rules.Recreate != "" {
		return false, r.rules.Recreate
	}
	from, err := r.Restore(old)
	if err != nil {
		return false, err.Error()
	}
	to, err := r.Restore(new)
	if err != nil {
		return false, err.Error()
	}
	return InPlace(from.Written, to.Written, EditRules{SetDefaults: r.rules.SetDefaults, QOSClass: r.rules.QOSClass})
}

// Desire returns what an origin defines with d: a pod of version v, or another object, of whose version only
// Seen counts; or everything that is wrong with it, one line each. It is for documents without errors.
func (r *Reader) Desire(d Doc, v Version, origin string) (*pod.Desired, *object.Desired, []string) {
	if d.Kind != "" {
		o, wrong := r.CompleteObject(d, v.Seen)
		if len(wrong) > 0 {
			return nil, nil, wrong
		}
		return nil, object.NewDesired(o, r.source, origin), nil
	}
	p, wrong := r.Complete(d, v)
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return &pod.Desired{Pod: p, Source: r.source, Origin: origin, Base: v.Base}, nil, nil
}

// Complete returns the static pod that d asks for, or everything that is wrong
// with it, one line each. It is for documents of pods without errors.
func (r *Reader) Complete(d Doc, v Version) (*v1.Pod, []string) {
	p := d.Written.DeepCopy()
	invalid := ValidateUID(p)
	id := Identity{Node: r.node, Source: r.source, Hash: d.Hash, Version: v}
	id.Apply(p)
	r.rules.SetDefaults(p)
	invalid = append(invalid, r.rules.Validate(p)...)
	invalid = append(invalid, validateDir(p, d.Hash)...)
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
	if m.Pod != nil && r.rules.Refuse != nil {
		wrong = append(wrong, d.locate(r.rules.Refuse(d.Written))...)
	}
	if len(wrong) == 0 {
		return d
	}
	d.Errors = render(wrong)
	if d.Canonical != nil {
		// It can't be used, but everything about it shall be reported at once.
		_, _, more := r.Desire(d, Version{}, "")
		d.Errors = append(d.Errors, more...)
	}
	return d
}

// take makes p the pod that d is about.
func (r *Reader) take(d *Doc, p *v1.Pod) error {
	d.asWritten = p.DeepCopy()
	Clean(p)
	canonical, err := Canonical(p)
	if err != nil {
		return err
	}
	if p.Name != "" {
		d.Name = p.Namespace + "/" + p.Name
	}
	d.Written, d.Canonical, d.Hash = p, canonical, Hash(canonical, r.node)
	return nil
}

// maxErrors is how many errors of one document are reported. To find the line of each of
// hundreds of thousands would take minutes.
const maxErrors = 100

// locate finds the lines where fields stand.
func (d Doc) locate(invalid field.ErrorList) []manifest.Error {
	listed := invalid[:min(len(invalid), maxErrors)]
	out := make([]manifest.Error, 0, len(listed)+1)
	for _, e := range listed {
		line := 0
		if d.lineOf != nil {
			line = d.lineOf(e.Field)
		}
		out = append(out, manifest.Error{Line: line, Path: e.Field, Message: e.ErrorBody()})
	}
	slices.SortStableFunc(out, func(a, b manifest.Error) int { return cmp.Compare(a.Line, b.Line) })
	if more := len(invalid) - len(listed); more > 0 {
		out = append(out, manifest.Error{
			Message: fmt.Sprintf("there is more wrong with this document (%d fields); only the first are listed",
				more)})
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
