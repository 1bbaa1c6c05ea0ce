package stats

import (
	"slices"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// rest computes the system container misc: the machine's usage without that of pods, agent and runtime. The cgroup of
// the host's processes (systemCgroups) doesn't show this usage: memory stays charged to the group in which a process
// first used it, and processes that are in other groups, or were started since, aren't in that cgroup. The figures of
// groups are read one after the other, so the difference may decrease; in that case, counters keep their last value.
// Page faults are counted from the first sample on: the number since boot is meaningless, and Kubernetes' node e2e
// suite expects fewer than a billion.
type rest struct {
	cpu, faults, majorFaults uint64
	// before are the numbers of page faults before the first sample; nil until the first sample.
	before *[2]uint64
	// groups records, by path, which figures could be read for each group.
	groups map[string]measured
}

// measured records which figures could be read for a group, and for how many consecutive samples some of them have been
// missing since.
type measured struct {
	cpu, memory bool
	missing     int
}

// maxMissing is for how many samples a group may be unreadable before it counts as removed.
const maxMissing = 5

// update sets the sample's Rest. The rates have to be set before. Pressure and limits of Rest are those of the cgroup
// of misc. While a group can't be read, there is no Rest: that group's usage would count as misc's, and the counters of
// misc can't decrease again.
func (r *rest) update(s *Sample) {
	i := slices.IndexFunc(s.System, isMisc)
	if i < 0 || s.Node.CPU == nil || s.Node.Memory == nil {
		return
	}
	cpu, memory, rate := *s.Node.CPU, *s.Node.Memory, s.Node.Rate
	missing := false
	for i := range s.System {
		o := &s.System[i]
		if isMisc(*o) || slices.ContainsFunc(s.System[:i], o.equals) || slices.ContainsFunc(s.System, o.isWithin) {
			continue
		}
		missing = r.misses(&o.Group) || missing
		if o.CPU != nil {
			subtract(&cpu.Usage, o.CPU.Usage)
		}
		if rate != nil && o.Rate != nil {
			rate = ptr.To(*rate - min(*o.Rate, *rate))
		}
		if m := o.Memory; m != nil {
			subtract(&memory.Usage, m.Usage)
			subtract(&memory.WorkingSet, m.WorkingSet)
			subtract(&memory.RSS, m.RSS)
			subtract(&memory.Swap, m.Swap)
			subtract(&memory.PageFaults, m.PageFaults)
			subtract(&memory.MajorPageFaults, m.MajorPageFaults)
		}
	}
	if missing {
		return
	}
	if r.before == nil {
		r.before = &[2]uint64{memory.PageFaults, memory.MajorPageFaults}
	}
	subtract(&memory.PageFaults, r.before[0])
	subtract(&memory.MajorPageFaults, r.before[1])
	for _, c := range [...]struct{ now, last *uint64 }{
		{&cpu.Usage, &r.cpu}, {&memory.PageFaults, &r.faults}, {&memory.MajorPageFaults, &r.majorFaults},
	} {
		*c.now = max(*c.now, *c.last)
		*c.last = *c.now
	}
	memory.OwnPageFaults, memory.OwnMajorPageFaults = memory.PageFaults, memory.MajorPageFaults
	memory.Limit, memory.SwapLimit = counters.Unlimited, counters.Unlimited
	if own := s.System[i].Memory; own != nil {
		memory.Limit, memory.SwapLimit = own.Limit, own.SwapLimit
	}
	s.Rest = s.System[i].Group
	s.Rest.At, s.Rest.CPU, s.Rest.Memory, s.Rest.Rate = s.Node.At, &cpu, &memory, rate
}

// misses reports whether figures are missing that could be read for the group before. A group for which they have been
// missing for maxMissing samples counts as removed.
func (r *rest) misses(g *Group) bool {
	if r.groups == nil {
		r.groups = map[string]measured{}
	}
	m := r.groups[g.Path]
	if (!m.cpu || g.CPU != nil) && (!m.memory || g.Memory != nil) || m.missing == maxMissing {
		r.groups[g.Path] = measured{cpu: g.CPU != nil, memory: g.Memory != nil}
		return false
	}
	m.missing++
	r.groups[g.Path] = m
	return true
}

func subtract(from *uint64, amount uint64) { *from -= min(amount, *from) }

func isMisc(s System) bool { return s.Name == statsapi.SystemContainerMisc }

func (s *System) equals(other System) bool { return other.Path == s.Path && !isMisc(other) }

// isWithin reports whether the group is a descendant of the other group, so that the other's figures include those of
// the group.
func (s *System) isWithin(other System) bool {
	return strings.HasPrefix(s.Path, strings.TrimSuffix(other.Path, "/")+"/") && s.Path != other.Path && !isMisc(other)
}
