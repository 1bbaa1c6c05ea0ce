package allocated

import (
	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Limits are the settings of a pod's control group.
type Limits struct {
	// CPUMilli is the requested CPU in thousandths of a CPU. It determines the group's weight.
	CPUMilli int64
	// CPULimitMilli (thousandths of a CPU) and MemoryLimit (bytes) are the group's limits; 0 means no limit.
	CPULimitMilli, MemoryLimit int64
	// MemoryRequest is the requested memory in bytes, which may be protected from reclaim (KEP-2570).
	MemoryRequest int64
	// SwapRequest is a memory request in bytes: the largest sum over the containers that run at the same time and may
	// use swap (see the function SwapRequest). It determines the pod's share of the swap.
	SwapRequest int64
}

// PodLimits returns the settings of the pod's control group for the allocation a, or, if a is nil, for its spec. The
// group has a limit only if everything in the pod is limited: by a pod-level limit (KEP-2837), or by a limit of each
// container. Init containers count by the rules of KEP-753, and overhead is added.
func PodLimits(p *v1.Pod, a *pod.Allocation) Limits {
	p = Apply(p, a)
	requests := helpers.PodRequests(p, helpers.PodResourcesOptions{})
	limits := helpers.PodLimits(p, helpers.PodResourcesOptions{})
	l := Limits{CPUMilli: requests.Cpu().MilliValue(), MemoryRequest: requests.Memory().Value(),
		SwapRequest: podSwapRequest(p)}
	if limited(p, v1.ResourceCPU) {
		l.CPULimitMilli = limits.Cpu().MilliValue()
	}
	if limited(p, v1.ResourceMemory) {
		l.MemoryLimit = limits.Memory().Value()
	}
	return l
}

// limited reports whether everything in the pod has a limit for this resource.
func limited(p *v1.Pod, name v1.ResourceName) bool {
	if r := p.Spec.Resources; r != nil {
		if limit, ok := r.Limits[name]; ok && limit.Sign() > 0 {
			return true
		}
	}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if limit := list[i].Resources.Limits[name]; limit.Sign() <= 0 {
				return false
			}
		}
	}
	return true
}
