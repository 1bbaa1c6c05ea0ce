package translate

import (
	"cmp"
	"os"
	"strconv"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
)

// Interface files of cgroup v2.
const (
	memoryHigh = "memory.high"
	memoryLow  = "memory.low"
	memoryMin  = "memory.min"
)

// defaultThrottling is the default of KubeletConfiguration's memoryThrottlingFactor.
const defaultThrottling = 0.9

// MemoryQoS configures how memory requests and limits influence the kernel's reclaim (KEP-2570, as of v1.36). It
// takes effect on cgroup v2 only.
type MemoryQoS struct {
	// Enabled is the feature gate MemoryQoS, alpha and off by default in v1.36.
	Enabled bool
	// ThrottlingFactor determines the memory usage between request and limit at which a container is throttled,
	// above 0 and up to 1; 0 means 0.9 (KubeletConfiguration memoryThrottlingFactor).
	ThrottlingFactor float64
	// Reserve protects requested memory from reclaim (memoryReservationPolicy TieredReservation).
	Reserve bool
	// Allocatable is the node's allocatable memory in bytes, used as the limit of containers without one.
	Allocatable int64
}

// values adds values of cgroup v2 files for the container to the map set: the values that differ from the kernel's
// defaults.
func (q *MemoryQoS) values(p *v1.Pod, c *v1.Container, set map[string]string) {
	if !q.Enabled {
		return
	}
	request := c.Resources.Requests.Memory().Value()
	if q.Reserve && request > 0 {
		switch p.Status.QOSClass {
		case v1.PodQOSGuaranteed:
			set[memoryMin] = strconv.FormatInt(request, 10)
		case v1.PodQOSBurstable:
			set[memoryLow] = strconv.FormatInt(request, 10)
		}
	}
	if p.Status.QOSClass == v1.PodQOSGuaranteed {
		return // its limit equals its request, so it is never throttled
	}
	factor := cmp.Or(q.ThrottlingFactor, defaultThrottling)
	limits := allocated.ContainerLimits(p, c.Resources.Limits)
	limit := cmp.Or(limits.Memory().Value(), q.Allocatable)
	if high := allocated.MemoryHigh(request, limit, factor, int64(os.Getpagesize())); high > 0 {
		set[memoryHigh] = strconv.FormatInt(high, 10)
	}
}
