package fields

import (
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Notice is about a setting that has no effect, or only a part of its usual effect.
type Notice struct {
	// Path is the path of a field, or the usual name of another setting.
	Path string
	// Why is the reason why the setting has no effect, or which part of its effect is missing.
	Why string
}

// NotActedOn lists the fields that were set without effect, in the table's order: this build doesn't implement them, or
// their feature gate is off. It omits zero values ("0s", "", {}), and values that request the behaviour that this build
// always has.
//
// c is the content of files and flags before defaults are set. alone means that the node is standalone. given reports
// whether a file or flag sets the field at a path, and gateOn whether a feature gate is on.
func NotActedOn(c *v1beta1.KubeletConfiguration, alone bool, given, gateOn func(string) bool) []Notice {
	means := map[string]string{} // formatted values of the fields that are set, by path
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

// place has the properties of the node on which the effect of a field depends.
type place struct {
	embedded, alone bool
	gateOn          func(string) bool
}

// limitation returns the reason why setting the field to value has no effect, or only a part of its effect. It is empty
// if the setting has its full effect.
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

// Lines formats notices, with one line for each reason, in the order of each reason's first notice.
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
