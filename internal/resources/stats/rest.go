package stats

import (
	"slices"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
)

// rest measures the system container misc: what the machine uses beside pods, agent and runtime. The control group that
// the host's processes are moved into (systemCgroups) doesn't tell that: memory stays charged to the group in which a
// process touched it first, and processes that are in groups of their own, or were started since, aren't moved. The
// counters are those of the last sample: the figures are read one after the other, and these may not go down. Page
// faults count from the first sample on: those since the machine booted say nothing, and Kubernetes' node suite expects
// fewer than a billion.
type rest struct {
	cpu, faults, majorFaults uint64
	// before are the page faults before the first sample; nil before that.
	before *[2]uint64
	// groups are those that have had figures, by path.
	groups map[string]measured
}

// measured is which figures of a group there were, and in how many samples in a row some of them have been missing
// since.
type measured struct {
	cpu, memory bool
	missing     int
}

// maxMissing is for how many samples a group may fail to be read before it counts as gone.
const maxMissing = 5

// update sets the sample's Rest, whose pressure and limits are those of the control group. The rates have to be known.
// While a group can't be read there is no Rest: what that group uses would count as misc's, whose counters couldn't go
// back.
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
	memory.Limit, memory.SwapLimit = cgroup.Unlimited, cgroup.Unlimited
	if own := s.System[i].Memory; own != nil {
		memory.Limit, memory.SwapLimit = own.Limit, own.SwapLimit
	}
	s.Rest = s.System[i].Group
	s.Rest.At, s.Rest.CPU, s.Rest.Memory, s.Rest.Rate = s.Node.At, &cpu, &memory, rate
}

// misses reports whether figures that the group had are missing, and isn't gone.
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

// isWithin reports whether the group is in the other, whose figures have it then.
func (s *System) isWithin(other System) bool {
	return strings.HasPrefix(s.Path, strings.TrimSuffix(other.Path, "/")+"/") && s.Path != other.Path && !isMisc(other)
}
