package resources

import (
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
	"github.com/deckhand-node/deckhand/internal/grant"
)

// MemoryLimit is how much memory the pod may use by its spec, in bytes; not ok if there is no limit.
func MemoryLimit(p *v1.Pod) (bytes int64, ok bool) {
	l := grant.PodLimits(p, nil)
	return l.MemoryLimit, l.MemoryLimit > 0
}

// setting is a value to write to a file of a controller.
type setting struct {
	controller, file, value string
	// lifts says that the value is no bound: a kernel without the file has none anyway.
	lifts bool
}

// Files that take care, when they are written.
const (
	cpuPeriod   = "cpu.cfs_period_us" // judged together with the quota
	cpuQuota    = "cpu.cfs_quota_us"
	memoryLimit = "memory.limit_in_bytes"
)

// settings are the values of the group of a pod. What isn't limited is set, too:
// the group may be there already, with limits of before.
func settings(l grant.Limits, v2 bool, c Config) []setting {
	s := append(make([]setting, 0, 4), sharesSetting(v2, cpuunits.Shares(l.CPUMilli)))
	milli := l.CPULimitMilli
	if c.NoCPUQuota {
		milli = 0
	}
	period := c.CPUPeriod.Microseconds()
	return append(append(s, quotaSettings(v2, cpuunits.Quota(milli, period), period)...), memorySetting(v2, l.MemoryLimit))
}

// quotaSettings bound the CPU; quota (microseconds in each period) is 0 for no bound.
func quotaSettings(v2 bool, quota, period int64) []setting {
	each := strconv.FormatInt(period, 10)
	value := strconv.FormatInt(quota, 10)
	switch {
	case v2 && quota == 0:
		return []setting{{controller: "cpu", file: "cpu.max", value: "max " + each, lifts: true}}
	case v2:
		return []setting{{controller: "cpu", file: "cpu.max", value: value + " " + each}}
	case quota == 0:
		return []setting{{controller: "cpu", file: cpuQuota, value: "-1", lifts: true}}
	default:
		return []setting{{controller: "cpu", file: cpuPeriod, value: each}, {controller: "cpu", file: cpuQuota, value: value}}
	}
}

// memorySetting bounds the memory (bytes); 0 is no bound.
func memorySetting(v2 bool, limit int64) setting {
	s := setting{controller: "memory", file: memoryLimit, value: "-1"}
	if v2 {
		s.file, s.value = "memory.max", "max"
	}
	if limit > 0 {
		s.value = strconv.FormatInt(limit, 10)
	}
	return s
}

// sharesSetting weighs a group by cgroup v1's shares.
func sharesSetting(v2 bool, shares int64) setting {
	if v2 {
		// The conversion of the OCI runtimes, so that pods and containers are weighed alike.
		weight := cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares))
		return setting{controller: "cpu", file: "cpu.weight", value: strconv.FormatUint(weight, 10)}
	}
	return setting{controller: "cpu", file: "cpu.shares", value: strconv.FormatInt(shares, 10)}
}
