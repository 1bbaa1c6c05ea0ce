package fields

import (
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Notice is about something that somebody set to no effect, or not to all of it.
type Notice struct {
	// Path is a field's, or how a person names what isn't a field.
	Path string
	// Why is the reason, in words.
	Why string
}

// NotActedOn lists the fields that somebody set in vain, in the table's order: nothing in
// this build acts on them, or their feature gate is off. Values that say nothing ("0s",
// "", {}), and those that ask for what this build does anyway, are left out.
//
// c is what files and flags say before defaults are filled in, alone that there is no cluster; given says whether they
// name a field, gateOn whether a feature gate is on.
func NotActedOn(c *v1beta1.KubeletConfiguration, alone bool, given, gateOn func(string) bool) []Notice {
	means := map[string]string{} // what is set, by path
	for _, l := range leavesOf(c) {
		if l.Value.IsValid() && given(l.Path) && !isZero(l.Value) {
			means[l.Path] = valueText(l.Value)
		}
	}
	in := place{embedded: c.ContainerRuntimeEndpoint == "", alone: alone, gateOn: gateOn}
	var notices []Notice
	for _, f := range All() {
		value, ok := means[f.Path]
		if why := f.limitation(value, in); ok && why != "" {
			notices = append(notices, Notice{f.Path, why})
		}
	}
	return notices
}

// place is where a field is to have an effect.
type place struct {
	embedded, alone bool
	gateOn          func(string) bool
}

// limitation says why setting the field to value has no effect, or not all of it; empty if
// nothing is missing.
func (f *Field) limitation(value string, in place) string {
	switch {
	case f.Idle != "" && value == f.Idle:
		return ""
	case f.Why != "":
		return f.Why
	case f.Gate != "" && !in.gateOn(f.Gate):
		return "it needs the feature gate " + f.Gate
	case f.Embedded && !in.embedded:
		return otherNetwork
	case f.Cluster && in.alone:
		return noCluster
	default:
		return f.Partly
	}
}

// Lines are the notices as text for people: a line for each reason, in the order in which the reasons come up.
func Lines(notices []Notice) []string {
	var reasons []string
	paths := map[string][]string{} // by reason
	for _, t := range notices {
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
