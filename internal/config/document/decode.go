package document

import (
	"fmt"
	"strings"
	"unicode"

	goyaml "go.yaml.in/yaml/v3"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// Limits of reading one file.
const (
	// maxValues is the maximum number of values. An alias counts each time it is used, so that a few lines of nested
	// aliases can't expand without limit.
	maxValues = 20_000
	// maxErrors is the maximum number of errors that are reported.
	maxErrors = 200
	// maxName is the maximum length of a name in bytes: the longest valid names are those of resources, with 253 bytes
	// before the slash and 63 after the slash.
	maxName = 317
)

// decoder applies a document to a configuration and collects the errors of the document.
type decoder struct {
	errs []Error
	// given records the origin of each value that was read. from is the origin of all values of this document, apart
	// from their lines.
	given origins
	from  Origin
}

// lay merges the mapping n into the configuration into. As in a JSON merge patch (RFC 7386), which the kubelet uses for
// drop-ins, a null removes the previous value, so that the field is unset.
func (d *decoder) lay(n *yaml.Node, into any) {
	y := yaml.Decoder{Rules: d, Overlay: d, MaxValues: maxValues, AliasBudget: yaml.MaxAliasCost}
	y.Decode(n, into)
}

// Given implements yaml.Overlay.
func (d *decoder) Given(path string, key *yaml.Node, part bool) {
	d.given.set(path, Origin{Kind: d.from.Kind, Name: d.from.Name, Line: key.Line}, !part)
}

// Forget implements yaml.Overlay.
func (d *decoder) Forget(path string) { d.given.forget(path) }

// Fail implements yaml.Rules.
func (d *decoder) Fail(n *yaml.Node, path, message string) bool {
	if len(d.errs) == maxErrors {
		d.errs = append(d.errs, Error{Line: n.Line, Message: "there are more errors from here on"})
		return false
	}
	d.errs = append(d.errs, Error{Line: n.Line, Path: shownPath(path), Message: message})
	return true
}

// Unknown implements yaml.Rules.
func (d *decoder) Unknown(meant string) string {
	if meant != "" {
		return fmt.Sprintf("there is no such field; did you mean %s?", meant)
	}
	return "there is no such field"
}

// Twice implements yaml.Rules.
func (d *decoder) Twice(line int) string {
	return fmt.Sprintf("it is given twice, first in line %d; remove one", line)
}

// Name implements yaml.Rules.
func (d *decoder) Name(path string, key *yaml.Node) string {
	name := "the name " + show(key)
	if isSecret(path) {
		name = "the name"
	}
	switch {
	case key.Kind != goyaml.ScalarNode:
		return show(key) + " can't be the name of a value"
	case key.ShortTag() == yaml.TagMerge:
		return `mappings aren't merged by "<<" here; write out what they share`
	case len(key.Value) > maxName:
		return fmt.Sprintf("%s has %d bytes; at most %d are read", name, len(key.Value), maxName)
	case strings.ContainsFunc(key.Value, unicode.IsControl):
		return name + " has control characters in it"
	}
	return ""
}
