package cgroup

import (
	"sort"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

// setting is a value to write to a file of a controller.
type setting struct {
	Controller, File, Value string
	// Optional says that a kernel without the file does without the value: it would
	// bound nothing, or there is nothing that could be bound.
	Optional bool
	// Initial says that a new group has that value by itself.
	Initial bool
}

// Files that take care, when they are written.
const (
	cpuPeriodFile   = "cpu.cfs_period_us" // validated together with the quota
	cpuQuotaFile    = "cpu.cfs_quota_us"
	memoryLimitFile = "memory.limit_in_bytes"
)

// rules are how this node bounds its pods.
type rules struct {
	// V2 is for cgroup v2.
	V2 bool
	// NoCPUQuota leaves CPU limits unenforced.
	NoCPUQuota bool
	// CPUPeriod is the CFS period.
	CPUPeriod time.Duration
	// WholePercents rounds CPU quotas up to hundredths of a CPU, the finest that
	// systemd has (systemd.resource-control(5), CPUQuota=). The OCI
	// runtimes round those of containers alike.
	WholePercents bool
	// PIDs is how many processes a pod may have; 0 for any number.
	PIDs int64
	// HugePages are the sizes of huge pages that can be bound, as control groups name them: "2MB".
	HugePages []string
	// Swap is shared out among pods, in proportion to their part of Memory (both in
	// bytes); 0 is none for anybody. Only cgroup v2 can.
	Swap, Memory int64
	// ReserveMemory protects requested memory from reclaim. Only cgroup v2 can.
	ReserveMemory bool
}

// Pod are the values of the group of a pod of the class. What isn't limited is
// set, too: the group may be there already, with limits of before. pages are the
// bytes of huge pages of each size that the pod may use.
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

// wholePercents is the quota, both in microseconds, of the next whole percent of the period.
func wholePercents(quota, period int64) int64 {
	const second, percent = 1_000_000, 10_000 // in microseconds of each second
	perSecond := (quota*second/period + percent - 1) / percent * percent
	return perSecond * period / second
}

// quota bounds the CPU; quota (microseconds in each period) is 0 for no bound.
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

// memory bounds the memory (bytes); 0 is no bound.
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

// pids bounds the number of processes. Without a bound there may be no group to lift it in.
func (r rules) pids() setting {
	if r.PIDs <= 0 {
		return setting{Controller: "pids", File: "pids.max", Value: "max", Optional: true, Initial: true}
	}
	return setting{Controller: "pids", File: "pids.max", Value: strconv.FormatInt(r.PIDs, 10)}
}

// swap bounds the pod as a whole: by what its containers may swap together, and
// so to none in most (KEP-2400). A kernel without the file has no swap, or can't
// account for it.
func (r rules) swap(class v1.PodQOSClass, request int64) setting {
	var share int64
	if class == v1.PodQOSBurstable {
		share = allocated.SwapShare(request, r.Memory, r.Swap)
	}
	return setting{Controller: "memory", File: "memory.swap.max", Value: strconv.FormatInt(share, 10), Optional: true}
}

// protection keeps what was requested from reclaim: for good in Guaranteed pods,
// as far as possible in Burstable ones (KEP-2570, "Mapping Rules").
func (r rules) protection(class v1.PodQOSClass, request int64) []setting {
	value := strconv.FormatInt(request, 10)
	switch {
	case !r.ReserveMemory:
		return nil // the QoS cgroups have none, so that an earlier value has no effect
	case class == v1.PodQOSGuaranteed:
		return []setting{{Controller: "memory", File: "memory.min", Value: value, Initial: request == 0}}
	case class == v1.PodQOSBurstable:
		return []setting{{Controller: "memory", File: "memory.low", Value: value, Initial: request == 0}}
	default:
		return nil
	}
}

// hugePages bounds the use of pages of one size, and where the kernel can, already
// their reservation: a process then gets an error from mmap instead of SIGBUS later. Bytes
// below 0 are no bound.
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

// Shares sets the weight of a group from cgroup v1's shares.
func (r rules) Shares(shares int64) setting {
	s := setting{Controller: "cpu", File: "cpu.shares", Value: strconv.FormatInt(r.weight(shares), 10)}
	if r.V2 {
		s.File = "cpu.weight"
	}
	return s
}

// weight is what stands for the shares on this host. On cgroup v2 it is by the conversion of
// the OCI runtimes, so that pods and containers have comparable weights.
func (r rules) weight(shares int64) int64 {
	if !r.V2 {
		return shares
	}
	return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)))
}

// CPUMilli is the least request, in thousandths of a CPU, that a group of this weight
// was made for; the most the kernel can tell apart if it is of none.
func (r rules) CPUMilli(weight int64) int64 {
	const most = allocated.MaxShares * 1000 / 1024
	return int64(sort.Search(most, func(milli int) bool { return r.weight(allocated.Shares(int64(milli))) >= weight }))
}

// Protected is what the QoS cgroups protect, for their pods to be able
// to: the kernel protects no group more than its parents. guaranteed and
// burstable are the bytes requested by all pods of the class. Beyond KEP-2570 the
// uppermost group gets memory.low as well, without which that of the QoS cgroup has no effect.
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
