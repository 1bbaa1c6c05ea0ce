package cgroup

import (
	"sort"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// setting is a value to write to a file of a controller.
type setting struct {
	Controller, File, Value string
	// Optional means that a missing file is no error: the value means no limit, or the kernel doesn't have the
	// resource.
	Optional bool
	// Initial means that new groups have this value by default.
	Initial bool
}

// Files that need special handling when they are written.
const (
	cpuPeriodFile   = "cpu.cfs_period_us" // validated together with the quota
	cpuQuotaFile    = "cpu.cfs_quota_us"
	memoryLimitFile = "memory.limit_in_bytes"
)

// rules determine the limits of pods on this node.
type rules struct {
	// V2 means that the host has cgroup v2.
	V2 bool
	// NoCPUQuota disables CPU limits.
	NoCPUQuota bool
	// CPUPeriod is the CFS period.
	CPUPeriod time.Duration
	// WholePercents rounds CPU quotas up to hundredths of a CPU, systemd's resolution (systemd.resource-control(5),
	// CPUQuota=). OCI runtimes round containers' quotas in the same way.
	WholePercents bool
	// PIDs limits the processes of a pod; 0 is no limit.
	PIDs int64
	// HugePages are the sizes of huge pages that can be limited, as in names of cgroup files: "2MB".
	HugePages []string
	// Swap is divided among pods in proportion to their part of Memory (both in bytes); 0 permits no swap. It needs
	// cgroup v2.
	Swap, Memory int64
	// ReserveMemory protects requested memory from reclaim. It needs cgroup v2.
	ReserveMemory bool
}

// Pod returns the values for a group of a pod of the class. They include resources without a limit: the group may
// exist with earlier limits. pages are the bytes of huge pages that the pod may use, by size.
func (r rules) Pod(class v1.PodQOSClass, l allocated.Limits, pages map[string]int64) []setting {
	s := append(make([]setting, 0, 8), r.Shares(allocated.Shares(l.CPUMilli)))
	milli := l.CPULimitMilli
	if r.NoCPUQuota {
		milli = 0
	}
	period := r.CPUPeriod.Microseconds()
	quota := allocated.Quota(milli, period)
	if r.WholePercents {
		quota = wholePercents(quota, period)
	}
	s = append(s, r.quota(quota, period)...)
	s = append(s, r.memory(l.MemoryLimit), r.pids())
	if r.V2 {
		s = append(s, r.swap(class, l.SwapRequest))
		s = append(s, r.protection(class, l.MemoryRequest)...)
	}
	for _, size := range r.HugePages {
		s = append(s, r.hugePages(size, pages[size])...)
	}
	return s
}

// wholePercents rounds the quota up to a whole percent of the period, both in microseconds.
func wholePercents(quota, period int64) int64 {
	const second, percent = 1_000_000, 10_000 // microseconds per second
	perSecond := (quota*second/period + percent - 1) / percent * percent
	return perSecond * period / second
}

// quota returns the values for a CPU limit. The quota is in microseconds per period, 0 for no limit; the period is in
// microseconds.
func (r rules) quota(quota, period int64) []setting {
	const initial = 100_000
	each := strconv.FormatInt(period, 10)
	value := strconv.FormatInt(quota, 10)
	switch {
	case r.V2 && quota == 0:
		return []setting{{Controller: "cpu", File: "cpu.max", Value: "max " + each, Optional: true,
			Initial: period == initial}}
	case r.V2:
		return []setting{{Controller: "cpu", File: "cpu.max", Value: value + " " + each}}
	case quota == 0:
		return []setting{{Controller: "cpu", File: cpuQuotaFile, Value: "-1", Optional: true, Initial: true}}
	default:
		return []setting{{Controller: "cpu", File: cpuPeriodFile, Value: each, Initial: period == initial}, {
			Controller: "cpu", File: cpuQuotaFile, Value: value}}
	}
}

// memory returns the value for a memory limit in bytes; 0 is no limit.
func (r rules) memory(limit int64) setting {
	s := setting{Controller: "memory", File: memoryLimitFile, Value: "-1", Initial: limit <= 0}
	if r.V2 {
		s.File, s.Value = "memory.max", "max"
	}
	if limit > 0 {
		s.Value = strconv.FormatInt(limit, 10)
	}
	return s
}

// pids limits the number of processes. Without a limit, the setting is optional, because the group may not exist in
// the hierarchy of the controller pids.
func (r rules) pids() setting {
	if r.PIDs <= 0 {
		return setting{Controller: "pids", File: "pids.max", Value: "max", Optional: true, Initial: true}
	}
	return setting{Controller: "pids", File: "pids.max", Value: strconv.FormatInt(r.PIDs, 10)}
}

// swap limits the pod's swap to the sum of its containers' swap limits; most pods may use no swap (KEP-2400). The
// setting is optional: without the file, the kernel has no swap or no swap accounting.
func (r rules) swap(class v1.PodQOSClass, request int64) setting {
	var share int64
	if class == v1.PodQOSBurstable {
		share = allocated.SwapShare(request, r.Memory, r.Swap)
	}
	return setting{Controller: "memory", File: "memory.swap.max", Value: strconv.FormatInt(share, 10), Optional: true}
}

// protection protects requested memory from reclaim: memory of Guaranteed pods in any case, memory of Burstable pods as
// far as possible (KEP-2570, "Mapping Rules").
func (r rules) protection(class v1.PodQOSClass, request int64) []setting {
	value := strconv.FormatInt(request, 10)
	switch {
	case !r.ReserveMemory:
		return nil // the QoS cgroup has no protection, so an earlier value in the pod's group has no effect
	case class == v1.PodQOSGuaranteed:
		return []setting{{Controller: "memory", File: "memory.min", Value: value, Initial: request == 0}}
	case class == v1.PodQOSBurstable:
		return []setting{{Controller: "memory", File: "memory.low", Value: value, Initial: request == 0}}
	default:
		return nil
	}
}

// hugePages limits the use of pages of one size and, if the kernel can, also their reservation: a process then gets
// an error from mmap instead of SIGBUS later. Negative bytes are no limit.
func (r rules) hugePages(size string, bytes int64) []setting {
	suffix, none := ".limit_in_bytes", "-1"
	if r.V2 {
		suffix, none = ".max", "max"
	}
	value := strconv.FormatInt(bytes, 10)
	if bytes < 0 {
		value = none
	}
	return []setting{
		{Controller: "hugetlb", File: "hugetlb." + size + suffix, Value: value, Optional: bytes < 0},
		{Controller: "hugetlb", File: "hugetlb." + size + ".rsvd" + suffix, Value: value, Optional: true},
	}
}

// Shares sets the CPU weight of a group, given as shares of cgroup v1.
func (r rules) Shares(shares int64) setting {
	s := setting{Controller: "cpu", File: "cpu.shares", Value: strconv.FormatInt(r.weight(shares), 10)}
	if r.V2 {
		s.File = "cpu.weight"
	}
	return s
}

// weight converts shares to this host's unit. On cgroup v2, it uses the conversion of the OCI runtimes, so that the
// weights of pods and containers are comparable.
func (r rules) weight(shares int64) int64 {
	if !r.V2 {
		return shares
	}
	return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)))
}

// CPUMilli returns the smallest request, in thousandths of a CPU, that results in at least this weight, or the
// largest request that the kernel can represent.
func (r rules) CPUMilli(weight int64) int64 {
	const most = allocated.MaxShares * 1000 / 1024
	return int64(sort.Search(most, func(milli int) bool { return r.weight(allocated.Shares(int64(milli))) >= weight }))
}

// Protected returns the QoS cgroups' memory protection. The kernel protects no group more than its ancestors, so the
// protection is the sum of the pods' protection. guaranteed and burstable are the bytes requested by all pods of the
// class. Beyond KEP-2570, the group kubepods gets memory.low as well; otherwise, memory.low of the QoS cgroup would
// have no effect.
func (r rules) Protected(guaranteed, burstable int64) (root, qos []setting) {
	if !r.V2 {
		return nil, nil
	}
	set := func(file string, bytes int64) setting {
		return setting{Controller: "memory", File: file, Value: strconv.FormatInt(bytes, 10), Optional: bytes == 0}
	}
	return []setting{set("memory.min", guaranteed+burstable), set("memory.low", burstable)},
		[]setting{set("memory.low", burstable)}
}
