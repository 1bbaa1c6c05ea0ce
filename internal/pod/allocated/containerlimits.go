package allocated

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// ContainerLimits returns the limits that apply to a container of the pod: the container's own limits (own) and, for
// resources without a limit there, the pod-level limits (KEP-2837, "Comprehensive Tabular View": programs adapt to
// the limits of their own control group). The result may share memory with the spec.
func ContainerLimits(p *v1.Pod, own v1.ResourceList) v1.ResourceList {
	if p.Spec.Resources == nil {
		return own
	}
	return LimitsUnder(p.Spec.Resources.Limits, own)
}

// LimitsUnder is like ContainerLimits. The argument whole has the pod-level limits.
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

// bounded reports whether a pod-level limit of this resource applies to the pod's containers.
func bounded(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || pod.IsHugePages(name)
}

// PodWide returns the allocated pod-level limits of a pod; nil if it has none.
func PodWide(a *pod.Allocation) v1.ResourceList {
	if a == nil || a.Pod == nil {
		return nil
	}
	return a.Pod.Limits
}
