package fields

import (
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/fields/leaves"
)

// Told is something that somebody set to no effect, or not to all of it.
type Told struct {
	// Path is a field's, or how a person names what isn't a field.
	Path string
	// Why is the reason, in words.
	Why string
}

// NotActedOn lists the fields that somebody set in vain, in the table's order: nothing in
// this build acts on them, or their feature gate is off. Values that say nothing ("0s",
// "", {}), and those that ask for what this build does anyway, aren't told of.
//
// c is what files and flags say before defaults are filled in; given tells whether they
// name a field, gateOn whether a feature gate is on.
func NotActedOn(c *v1beta1.KubeletConfiguration, given, gateOn func(string) bool) []Told {
	means := map[string]string{} // what is set, by path
	for _, l := range leaves.Of(c) {
		if l.Value.IsValid() && given(l.Path) && !leaves.Zero(l.Value) {
			means[l.Path] = leaves.Text(l.Value)
		}
	}
	embedded := c.ContainerRuntimeEndpoint == ""
	var told []Told
	for _, f := range All() {
		value, ok := means[f.Path]
		if why := f.lacks(value, embedded, gateOn); ok && why != "" {
			told = append(told, Told{f.Path, why})
		}
	}
	return told
}

// lacks says why setting the field to value has no effect, or not all of it; empty if
// nothing is missing.
func (f *Field) lacks(value string, embedded bool, gateOn func(string) bool) string {
	switch {
	case f.Idle != "" && value == f.Idle:
		return ""
	case f.Why != "":
		return f.Why
	case f.Gate != "" && !gateOn(f.Gate):
		return "it needs the feature gate " + f.Gate
	case f.Embedded && !embedded:
		return otherNetwork
	default:
		return f.Partly
	}
}

// Lines tell it to a person: a line for each reason, in the order in which the reasons come up.
func Lines(told []Told) []string {
	var reasons []string
	paths := map[string][]string{} // by reason
	for _, t := range told {
		if paths[t.Why] == nil {
			reasons = append(reasons, t.Why)
		}
		paths[t.Why] = append(paths[t.Why], t.Path)
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(paths[why], ", ") + ": " + why
	}
	return reasons
}
