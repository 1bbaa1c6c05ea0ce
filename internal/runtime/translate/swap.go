package translate

import (
	"strconv"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SwapLimit is how many bytes of swap the container may use by KEP-2400: none but
// in Burstable pods under LimitedSwap, and there in proportion to what it requests.
func SwapLimit(s *Settings, p *v1.Pod, c *v1.Container) int64 {
	if !s.CgroupV2 || p.Status.QOSClass != v1.PodQOSBurstable {
		return 0
	}
	return allocated.SwapShare(allocated.SwapRequest(p, c), s.MemoryCapacity, s.Swap)
}

// swap sets the CRI's limit of memory and swap together. Without a limit of
// memory it can't say anything: cgroup v2 has swapMax then, and cgroup v1 nothing.
func (s *Settings) swap(r *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container) {
	switch {
	case !s.BoundSwap:
	case r.MemoryLimitInBytes > 0:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes + SwapLimit(s, p, c)
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
}

// swapMax bounds swap by cgroup v2's own file. It goes beside the CRI's limit:
// containerd ignores that one if it runs in the root group, and it says nothing of
// containers without a memory limit.
func (s *Settings) swapMax(p *v1.Pod, c *v1.Container, set map[string]string) {
	if s.BoundSwap {
		set["memory.swap.max"] = strconv.FormatInt(SwapLimit(s, p, c), 10)
	}
}
