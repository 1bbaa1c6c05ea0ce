package translate

import (
	"strconv"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SwapLimit returns the container's swap limit in bytes according to KEP-2400: 0 except in Burstable pods with
// LimitedSwap, where it is proportional to the memory request.
func SwapLimit(s *Settings, p *v1.Pod, c *v1.Container) int64 {
	if !s.CgroupV2 || p.Status.QOSClass != v1.PodQOSBurstable {
		return 0
	}
	return allocated.SwapShare(allocated.SwapRequest(p, c), s.MemoryCapacity, s.Swap)
}

// swap sets the CRI's limit of memory plus swap. Without a memory limit the CRI can't express a swap limit: cgroup
// v2 uses swapMax then, and cgroup v1 has no limit.
func (s *Settings) swap(r *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container) {
	switch {
	case !s.BoundSwap:
	case r.MemoryLimitInBytes > 0:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes + SwapLimit(s, p, c)
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
}

// swapMax limits swap with cgroup v2's own file, in addition to the CRI's limit: containerd ignores the CRI's limit
// if it runs in the root cgroup, and that limit doesn't cover containers without a memory limit.
func (s *Settings) swapMax(p *v1.Pod, c *v1.Container, set map[string]string) {
	if s.BoundSwap {
		set["memory.swap.max"] = strconv.FormatInt(SwapLimit(s, p, c), 10)
	}
}
