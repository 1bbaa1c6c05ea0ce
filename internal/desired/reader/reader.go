// Package reader converts the text of a manifest to complete static pods and other objects: it decodes, adds the
// identity, sets defaults and validates, in that order.
//
// A new pod's UID is the UID that the kubelet would give it: see uid.go. A changed text defines another pod, unless the
// edit is applied in place: see Version. Texts are equal if their content hashes are. The hash is computed before
// defaults are set, so that a release of deckhand with other defaults doesn't recreate the pods of the previous
// release. Objects get a UID and a creation time that stay as long as the object does, and a resource version that
// changes with its content.
package reader

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/manifest"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Rules complete and validate a decoded pod. They change nothing but the pod that SetDefaults is given.
type Rules struct {
	// SetDefaults sets the defaults of a pod like an API server.
	SetDefaults func(*v1.Pod)
	// Validate returns all errors in a complete pod.
	Validate func(*v1.Pod) field.ErrorList
	// QOSClass returns the quality of service class of a pod that has its defaults. An edit that would change it
	// isn't applied in place.
	QOSClass func(*v1.Pod) v1.PodQOSClass
	// Refuse returns the fields of a pod, before defaults, that are valid but not allowed on this node; nil refuses
	// nothing. It applies to each text that is read, including one that was accepted before.
	Refuse func(*v1.Pod) field.ErrorList
	// Recreate is why edits are never applied in place; empty if they may be.
	Recreate string
}

// Reader reads manifests for one source on one node. It has no state; it is safe for concurrent use if its rules are.
type Reader struct {
	node   string
	source pod.Source
	rules  Rules
}

// New returns a reader of a source's manifests on the named node.
func New(node string, source pod.Source, rules Rules) *Reader {
	return &Reader{node: node, source: source, rules: rules}
}

// Node returns the name of the node.
func (r *Reader) Node() string { return r.node }

// Source returns the source whose manifests are read.
func (r *Reader) Source() pod.Source { return r.source }

// Doc is one document of a manifest: a pod or another object before defaults and identity, or the document's errors.
type Doc struct {
	// Number is the position in the manifest, from 1.
	Number int
	ID
	// Canonical and Hash are the canonical form (see Canonical) and the content hash. They are empty if the document
	// can't be read.
	Canonical []byte
	Hash      string
	// Errors are all errors found before Complete, one line each; empty for a good document.
	Errors []string

	// Written is the pod of the manifest, read-only; nil for other kinds.
	Written *v1.Pod

	// defaulted returns Written with defaults, read-only. The defaults are set once, when they are first needed: never
	// for a document that is already in effect.
	defaulted func() *v1.Pod
	// meta and status are those of the manifest, before Clean removes fields from them; UIDs are computed from them.
	meta   metav1.ObjectMeta
	status v1.PodStatus
	// object is the object of the manifest; nil for a pod.
	object object.Object
	// lineOf returns the line of a field in the text. It is nil for a document that wasn't read from a text.
	lineOf func(path string) int
}

// ID identifies the pod or object that a document defines. No two documents may have the same ID.
type ID struct {
	// Kind is empty for a pod, and for a document of an unknown kind.
	Kind object.Kind
	// Name is "namespace/name" as in the manifest (without the node's name), or "name" if the kind has no namespace,
	// as far as it is readable.
	Name string
}

// Object is the key of the document's object; ok is false for a pod, and if the key is incomplete.
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

// String is the ID for users: "pod default/web", "ConfigMap default/app".
func (id ID) String() string {
	if id.Kind == "" {
		return "pod " + id.Name
	}
	return string(id.Kind) + " " + id.Name
}

// ErrBlank is returned by Read for a text without content. Writing a file often begins with truncating it, so an empty
// file doesn't mean that no pods should run.
var ErrBlank = errors.New("it is empty, or has only comments; to have its pods removed, delete it")

// Read returns the documents of a manifest, in order. It fails only with ErrBlank. A list without items is neither a
// document nor an error.
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

// Restore reads a pod from its canonical form.
func (r *Reader) Restore(canonical []byte) (Doc, error) {
	p := &v1.Pod{}
	if err := restore(canonical, p); err != nil {
		return Doc{}, err
	}
	d := Doc{Number: 1}
	if err := r.setContent(&d, p); err != nil {
		return Doc{}, err
	}
	return d, nil
}

func restore(canonical []byte, p *v1.Pod) error {
	if err := json.Unmarshal(canonical, p); err != nil {
		return fmt.Errorf("a stored pod can't be read: %w", err)
	}
	return nil
}

// InPlace reports whether a running pod can become another one, both in canonical form (Doc.Canonical). If not, why
// is the reason: see the function InPlace.
func (r *Reader) InPlace(old, new []byte) (ok bool, why string) {
	if r.rules.Recreate != "" {
		return false, r.rules.Recreate
	}
	var pods [2]v1.Pod
	for i, canonical := range [][]byte{old, new} {
		if err := restore(canonical, &pods[i]); err != nil {
			return false, err.Error()
		}
	}
	return InPlace(&pods[0], &pods[1], EditRules{SetDefaults: r.rules.SetDefaults, QOSClass: r.rules.QOSClass})
}

// Desire returns the pod or object that document d of an origin defines, or all errors of the pod or object, one line
// each. The result has version v; for an object, only v.Seen is used. d is a document without errors.
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

// Complete returns the static pod that d defines, or all its errors, one line each. d is a document of a pod without
// errors.
func (r *Reader) Complete(d Doc, v Version) (*v1.Pod, []string) {
	p := d.defaulted().DeepCopy()
	invalid := ValidateUID(p)
	id := Identity{Node: r.node, Source: r.source, Hash: d.Hash, Version: v}
	id.Apply(p)
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
		err = r.setContent(&d, m.Pod)
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
		// The document can't be used, but all its errors are reported at once.
		_, _, more := r.Desire(d, Version{}, "")
		d.Errors = append(d.Errors, more...)
	}
	return d
}

// setContent sets p as the content of d.
func (r *Reader) setContent(d *Doc, p *v1.Pod) error {
	d.meta, d.status = p.ObjectMeta, p.Status
	Clean(p)
	canonical, err := Canonical(p)
	if err != nil {
		return err
	}
	if p.Name != "" {
		d.Name = p.Namespace + "/" + p.Name
	}
	d.Written, d.Canonical, d.Hash = p, canonical, Hash(canonical, r.node)
	d.defaulted = sync.OnceValue(func() *v1.Pod {
		complete := p.DeepCopy()
		r.rules.SetDefaults(complete)
		return complete
	})
	return nil
}

// maxErrors limits the errors that are reported for one document. Finding the lines of hundreds of thousands of errors
// would take minutes.
const maxErrors = 100

// locate converts the first maxErrors field errors to errors with line numbers, and sorts them by line.
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

// blank reports whether the text consists of empty lines, comments and document separators.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(strings.TrimPrefix(string(line), "\ufeff"))
		if text != "" && text != "---" && text != "..." && text[0] != '#' && text[0] != '%' {
			return false
		}
	}
	return true
}
