package allocated

import (
	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Limits are the settings of a pod's control group.
type Limits struct {
	// CPUMilli is the CPU requested, which is the group's weight, in thousandths of a CPU.
	CPUMilli int64
	// CPULimitMilli (thousandths of a CPU) and MemoryLimit (bytes) bound the group; 0 is no bound.
	CPULimitMilli, MemoryLimit int64
	// MemoryRequest is the requested memory in bytes, which may be protected from reclaim (KEP-2570).
	MemoryRequest int64
	// SwapRequest is the most memory, in bytes, that is requested at one time by
	// containers that may swap (SwapRequest): swap is shared out by it.
	SwapRequest int64
}

// PodLimits returns the settings of the pod's control group for the allocation a, or, if a is nil, for its spec. There
// is a bound only if there is one for everything in the pod: a limit of the pod as a whole (KEP-2837), or one of each
// container. Init containers count by the rules of KEP-753, overhead is added.
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

// limited reports whether a limit holds for everything in the pod.
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
