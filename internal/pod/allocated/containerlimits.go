package allocated

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// ContainerLimits are the limits that hold for the container: its own, and for resources without one those of the pod
// as a whole (KEP-2837, "Comprehensive Tabular View": programs size themselves by their own control group). The result
// may share memory with the spec.
func ContainerLimits(p *v1.Pod, own v1.ResourceList) v1.ResourceList {
	if p.Spec.Resources == nil {
		return own
	}
	return LimitsUnder(p.Spec.Resources.Limits, own)
}

// LimitsUnder is ContainerLimits in a pod with these limits as a whole.
func LimitsUnder(whole, own v1.ResourceList) v1.ResourceList {
	if len(whole) == 0 {
		return own
	}
	limits := own.DeepCopy()
	for name, q := range whole {
		if have, ok := own[name]; ok && !have.IsZero() || !bounded(name) {
			continue
		}
		limits = set(limits, name, q)
	}
	return limits
}

// bounded reports whether a resource of the pod as a whole bounds its containers.
func bounded(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// PodWide are a pod's allocated pod-level limits; nil for none.
func PodWide(a *pod.Allocation) v1.ResourceList {
	if a == nil || a.Pod == nil {
		return nil
	}
	return a.Pod.Limits
}
