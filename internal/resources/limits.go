package resources

import (
	"iter"
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
)

// limits is what a pod as a whole asks for and may use.
type limits struct {
	// milliCPU is the sum of CPU requests, in thousandths of a CPU.
	milliCPU int64
	// milliCPULimit and memoryLimit (bytes) are 0 unless everything in the pod is limited.
	milliCPULimit, memoryLimit int64
}

func limitsOf(p *v1.Pod) limits {
	requests := helpers.PodRequests(p, helpers.PodResourcesOptions{})
	l := limits{milliCPU: requests.Cpu().MilliValue()}
	total := helpers.PodLimits(p, helpers.PodResourcesOptions{})
	if limited(p, v1.ResourceCPU) {
		l.milliCPULimit = total.Cpu().MilliValue()
	}
	if limited(p, v1.ResourceMemory) {
		l.memoryLimit = total.Memory().Value()
	}
	return l
}

// MemoryLimit is how much memory the pod may use, in bytes; not ok if there is no limit.
func MemoryLimit(p *v1.Pod) (bytes int64, ok bool) {
	l := limitsOf(p)
	return l.memoryLimit, l.memoryLimit > 0
}

// limited reports whether a limit holds for everything in the pod.
func limited(p *v1.Pod, name v1.ResourceName) bool {
	if r := p.Spec.Resources; r != nil {
		if limit, ok := r.Limits[name]; ok && limit.Sign() > 0 {
			return true
		}
	}
	for r := range allResources(p) {
		if limit := r.Limits[name]; limit.Sign() <= 0 {
			return false
		}
	}
	return true
}

// allResources goes through the resources of every container, init containers too.
func allResources(p *v1.Pod) iter.Seq[v1.ResourceRequirements] {
	return func(yield func(v1.ResourceRequirements) bool) {
		for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(list[i].Resources) {
					return
				}
			}
		}
	}
}

// setting is a value to write to a file of a controller.
type setting struct{ controller, file, value string }

func (l limits) settings(v2 bool, c Config) []setting {
	s := append(make([]setting, 0, 4), sharesSetting(v2, cpuunits.Shares(l.milliCPU)))
	if l.milliCPULimit > 0 && !c.NoCPUQuota {
		period := c.CPUPeriod.Microseconds()
		quota := strconv.FormatInt(cpuunits.Quota(l.milliCPULimit, period), 10)
		if v2 {
			s = append(s, setting{"cpu", "cpu.max", quota + " " + strconv.FormatInt(period, 10)})
		} else {
			s = append(s,
				setting{"cpu", "cpu.cfs_period_us", strconv.FormatInt(period, 10)},
				setting{"cpu", "cpu.cfs_quota_us", quota})
		}
	}
	if l.memoryLimit > 0 {
		file := "memory.limit_in_bytes"
		if v2 {
			file = "memory.max"
		}
		s = append(s, setting{"memory", file, strconv.FormatInt(l.memoryLimit, 10)})
	}
	return s
}

// sharesSetting weighs a group by cgroup v1's shares.
func sharesSetting(v2 bool, shares int64) setting {
	if v2 {
		// The conversion of the OCI runtimes, so that pods and containers are weighed alike.
		return setting{"cpu", "cpu.weight", strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)), 10)}
	}
	return setting{"cpu", "cpu.shares", strconv.FormatInt(shares, 10)}
}
