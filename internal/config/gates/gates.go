// Package gates knows the feature gates of kubelet 1.36: their names, stages and
// defaults, which of them are locked or need others, and what this build makes of
// each. Wishes are resolved once, into a Set that is passed down as a value.
//
// The library k8s.io/component-base/featuregate isn't used for that, but tests hold
// this package against it: it stops at the first unknown name, panics when asked for
// one, and leaves 1.5 MB of garbage when asked for all gates.
package gates

import (
	"slices"
	"strings"
)

// Stage is how far a feature has come.
type Stage string

// The stages, as `kubelet --help` writes them; GA isn't listed there.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = "GA"
	Deprecated Stage = "DEPRECATED"
)

// Label is the stage as the metric kubernetes_feature_enabled has it: GA is empty.
func (s Stage) Label() string {
	if s == GA {
		return ""
	}
	return string(s)
}

// Effect is what a gate does in this build.
type Effect string

const (
	// Switched gates do here what they do in the kubelet.
	Switched Effect = "switched"
	// AlwaysOn are features that this build has whatever their gate says.
	AlwaysOn Effect = "always on"
	// NeverOn are features of a node agent that this build doesn't have.
	NeverOn Effect = "never on"
	// Elsewhere are features of other components. The kubelet knows their gates as well,
	// since they share libraries, and does nothing about them.
	Elsewhere Effect = "elsewhere"
)

// AllAlpha and AllBeta switch all gates of their stage that aren't given themselves.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

const (
	// MemoryQoS protects and throttles memory on cgroup v2 (KEP-2570).
	MemoryQoS = "MemoryQoS"
	// QOSReserved keeps memory that pods request from pods of lower QoS classes (qosReserved).
	QOSReserved = "QOSReserved"
	// ContainerCheckpoint has the runtime write containers into archives when somebody asks for it.
	ContainerCheckpoint = "ContainerCheckpoint"
	// PreventStaticPodAPIReferences refuses static pods of a cluster that refer to objects of its API server.
	PreventStaticPodAPIReferences = "PreventStaticPodAPIReferences"
	// ReduceDefaultCrashLoopBackOffDecay has containers that crash restarted sooner (KEP-4603).
	ReduceDefaultCrashLoopBackOffDecay = "ReduceDefaultCrashLoopBackOffDecay"
	// ResourceHealthStatus has statuses of pods say which of their devices are healthy (KEP-4680).
	ResourceHealthStatus = "ResourceHealthStatus"
)

// Gate is a feature gate that kubelet 1.36 knows.
type Gate struct {
	Name    string
	Stage   Stage
	Default bool
	// Locked gates can't be set to anything but their default.
	Locked bool
	// Needs are the gates that have to be on where this one is, sorted.
	Needs []string
	// Effect is what the gate does in this build.
	Effect Effect
	// Acts is about the effect, for a person: what is switched or always on, why it is
	// never on, or which component it belongs to.
	Acts string
}

// follows reports whether this build does what the gate says when it is on or off.
func (g *Gate) follows(on bool) bool {
	switch g.Effect {
	case AlwaysOn:
		return on
	case NeverOn:
		return !on
	case Elsewhere:
		return on == g.Default // nothing is asked for
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
