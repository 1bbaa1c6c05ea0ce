// Package knob says which values go into which files of control groups, for what
// a pod is allowed on this node. It has no state and no I/O.
package knob

import (
	"sort"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/memunits"
)

// Setting is a value to write to a file of a controller.
type Setting struct {
	Controller, File, Value string
	// Optional says that a kernel without the file does without the value: it would
	// bound nothing, or there is nothing that could be bound.
	Optional bool
}

// Files that take care, when they are written.
const (
	CPUPeriod   = "cpu.cfs_period_us" // judged together with the quota
	CPUQuota    = "cpu.cfs_quota_us"
	MemoryLimit = "memory.limit_in_bytes"
)

// Rules are how this node bounds its pods.
type Rules struct {
	// V2 is for cgroup v2.
	V2 bool
	// NoCPUQuota leaves CPU limits unenforced.
	NoCPUQuota bool
	// CPUPeriod is the CFS period.
	CPUPeriod time.Duration
	// WholePercents rounds CPU quotas up to hundredths of a CPU, finer than which
	// systemd doesn't know them (systemd.resource-control(5), CPUQuota=). The OCI
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
func (r Rules) Pod(class v1.PodQOSClass, l grant.Limits, pages map[string]int64) []Setting {
	s := append(make([]Setting, 0, 8), r.Shares(cpuunits.Shares(l.CPUMilli)))
	milli := l.CPULimitMilli
	if r.NoCPUQuota {
		milli = 0
	}
	period := r.CPUPeriod.Microseconds()
	quota := cpuunits.Quota(milli, period)
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
func (r Rules) quota(quota, period int64) []Setting {
	each := strconv.FormatInt(period, 10)
	value := strconv.FormatInt(quota, 10)
	switch {
	case r.V2 && quota == 0:
		return []Setting{{Controller: "cpu", File: "cpu.max", Value: "max " + each, Optional: true}}
	case r.V2:
		return []Setting{{Controller: "cpu", File: "cpu.max", Value: value + " " + each}}
	case quota == 0:
		return []Setting{{Controller: "cpu", File: CPUQuota, Value: "-1", Optional: true}}
	default:
		return []Setting{{Controller: "cpu", File: CPUPeriod, Value: each}, {Controller: "cpu", File: CPUQuota, Value: value}}
	}
}

// memory bounds the memory (bytes); 0 is no bound.
func (r Rules) memory(limit int64) Setting {
	s := Setting{Controller: "memory", File: MemoryLimit, Value: "-1"}
	if r.V2 {
		s.File, s.Value = "memory.max", "max"
	}
	if limit > 0 {
		s.Value = strconv.FormatInt(limit, 10)
	}
	return s
}

// pids bounds the number of processes. Without a bound there may be no group to lift it in.
func (r Rules) pids() Setting {
	if r.PIDs <= 0 {
		return Setting{Controller: "pids", File: "pids.max", Value: "max", Optional: true}
	}
	return Setting{Controller: "pids", File: "pids.max", Value: strconv.FormatInt(r.PIDs, 10)}
}

// swap bounds the pod as a whole: by what its containers may swap together, and
// so to none in most (KEP-2400). A kernel without the file has no swap, or can't
// account for it.
func (r Rules) swap(class v1.PodQOSClass, request int64) Setting {
	var share int64
	if class == v1.PodQOSBurstable {
		share = memunits.SwapShare(request, r.Memory, r.Swap)
	}
	return Setting{Controller: "memory", File: "memory.swap.max", Value: strconv.FormatInt(share, 10), Optional: true}
}

// protection keeps what was requested from reclaim: for good in Guaranteed pods,
// as far as possible in Burstable ones (KEP-2570, "Mapping Rules").
func (r Rules) protection(class v1.PodQOSClass, request int64) []Setting {
	value := strconv.FormatInt(request, 10)
	switch {
	case !r.ReserveMemory:
		return nil // the tiers above have none, so that a value of before means nothing
	case class == v1.PodQOSGuaranteed:
		return []Setting{{Controller: "memory", File: "memory.min", Value: value}}
	case class == v1.PodQOSBurstable:
		return []Setting{{Controller: "memory", File: "memory.low", Value: value}}
	default:
		return nil
	}
}

// hugePages bounds the use of pages of one size, and where the kernel can, already
// their reservation: a process then gets an error from mmap instead of SIGBUS later.
func (r Rules) hugePages(size string, bytes int64) []Setting {
	suffix := ".limit_in_bytes"
	if r.V2 {
		suffix = ".max"
	}
	value := strconv.FormatInt(bytes, 10)
	return []Setting{
		{Controller: "hugetlb", File: "hugetlb." + size + suffix, Value: value},
		{Controller: "hugetlb", File: "hugetlb." + size + ".rsvd" + suffix, Value: value, Optional: true},
	}
}

// Shares weighs a group by cgroup v1's shares.
func (r Rules) Shares(shares int64) Setting {
	s := Setting{Controller: "cpu", File: "cpu.shares", Value: strconv.FormatInt(r.weight(shares), 10)}
	if r.V2 {
		s.File = "cpu.weight"
	}
	return s
}

// weight is what stands for the shares on this host. On cgroup v2 it is by the conversion of
// the OCI runtimes, so that pods and containers are weighed alike.
func (r Rules) weight(shares int64) int64 {
	if !r.V2 {
		return shares
	}
	return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)))
}

// CPUMilli is the least request, in thousandths of a CPU, that a group of this weight
// was made for; the most the kernel can tell apart if it is of none.
func (r Rules) CPUMilli(weight int64) int64 {
	const most = cpuunits.MaxShares * 1000 / 1024
	return int64(sort.Search(most, func(milli int) bool { return r.weight(cpuunits.Shares(int64(milli))) >= weight }))
}

// Protected is what the groups above the pods protect, for their pods to be able
// to: the kernel protects no group further than those around it. guaranteed and
// burstable are the bytes requested by all pods of the class. Beyond KEP-2570 the
// uppermost group gets memory.low as well, without which that of the tier is void.
func (r Rules) Protected(guaranteed, burstable int64) (pods, tier []Setting) {
	if !r.V2 {
		return nil, nil
	}
	set := func(file string, bytes int64) Setting {
		return Setting{Controller: "memory", File: file, Value: strconv.FormatInt(bytes, 10), Optional: bytes == 0}
	}
	return []Setting{set("memory.min", guaranteed+burstable), set("memory.low", burstable)}, []Setting{set("memory.low", burstable)}
}
