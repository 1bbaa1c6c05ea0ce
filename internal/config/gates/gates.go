// Package gates has the feature gates of kubelet 1.36: their names, stages and defaults, which of them are locked or
// require other gates, and their effect in this build. Settings are resolved once, into a Set that is passed as a
// value.
//
// It doesn't use the library k8s.io/component-base/featuregate, but tests compare the two: the library stops at the
// first unknown name, panics when an unknown gate is queried, and leaves 1.5 MB of garbage when all gates are listed.
package gates

import (
	"slices"
	"strings"
)

// Stage is the stage of a feature.
type Stage string

// The stages, as `kubelet --help` writes them; GA isn't listed there.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = "GA"
	Deprecated Stage = "DEPRECATED"
)

// Label returns the stage as the label of the metric kubernetes_feature_enabled; it is empty for GA.
func (s Stage) Label() string {
	if s == GA {
		return ""
	}
	return string(s)
}

// Effect is the effect of a gate in this build.
type Effect string

const (
	// Switched gates have the same effect as in the kubelet.
	Switched Effect = "switched"
	// AlwaysOn are features that this build has regardless of their gate.
	AlwaysOn Effect = "always on"
	// NeverOn are features of a kubelet that this build doesn't have.
	NeverOn Effect = "never on"
	// Elsewhere are features of other components. The kubelet accepts their gates, because the components share
	// libraries, but the gates have no effect in the kubelet.
	Elsewhere Effect = "elsewhere"
)

// AllAlpha and AllBeta set all gates of their stage that aren't set by name.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

const (
	// MemoryQoS protects and throttles memory on cgroup v2 (KEP-2570).
	MemoryQoS = "MemoryQoS"
	// QOSReserved keeps pods of lower QoS classes from using the memory that pods of higher classes request
	// (qosReserved).
	QOSReserved = "QOSReserved"
	// DisableCPUQuotaWithExclusiveCPUs: containers with CPUs to themselves have no CPU limit.
	DisableCPUQuotaWithExclusiveCPUs = "DisableCPUQuotaWithExclusiveCPUs"
	// ContainerCheckpoint lets clients checkpoint containers into archives.
	ContainerCheckpoint = "ContainerCheckpoint"
	// PreventStaticPodAPIReferences rejects static pods of a cluster that refer to objects of its API server.
	PreventStaticPodAPIReferences = "PreventStaticPodAPIReferences"
	// ReduceDefaultCrashLoopBackOffDecay restarts crashing containers sooner (KEP-4603).
	ReduceDefaultCrashLoopBackOffDecay = "ReduceDefaultCrashLoopBackOffDecay"
	// ResourceHealthStatus reports the health of pods' devices in their statuses (KEP-4680).
	ResourceHealthStatus = "ResourceHealthStatus"
)

// Gate is a feature gate of kubelet 1.36.
type Gate struct {
	Name    string
	Stage   Stage
	Default bool
	// Locked gates can only be set to their default.
	Locked bool
	// Needs are the gates that must be on if this gate is on, sorted.
	Needs []string
	// Effect is the gate's effect in this build.
	Effect Effect
	// Acts describes the effect: which feature is switched or always on, why the feature is never on, or which other
	// component has the feature.
	Acts string
}

// follows reports whether this build behaves as the gate requests when the gate is on, or off.
func (g *Gate) follows(on bool) bool {
	switch g.Effect {
	case AlwaysOn:
		return on
	case NeverOn:
		return !on
	case Elsewhere:
		return on == g.Default // a gate with its default value requests nothing
	default:
		return true
	}
}

// All returns all gates, sorted by name.
func All() []Gate {
	needs := needs()
	byName := map[string]effectGroup{}
	for _, e := range effects() {
		for name := range strings.FieldsSeq(e.names) {
			byName[name] = e
		}
	}
	var all []Gate
	for _, group := range kubelet() {
		for name := range strings.FieldsSeq(group.names) {
			all = append(all, Gate{
				Name: name, Stage: group.stage, Default: group.on, Locked: group.locked,
				Needs: strings.Fields(needs[name]), Effect: byName[name].effect, Acts: byName[name].acts,
			})
		}
	}
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}
