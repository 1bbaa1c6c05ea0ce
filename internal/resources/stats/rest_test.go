package stats

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// used is a group that has used n of everything.
func used(path string, n uint64) Group {
	return Group{Path: path, Rate: ptr.To(n), Figures: counters.Figures{CPU: &counters.CPU{Usage: n},
		Memory: &counters.Memory{Usage: n, WorkingSet: n, RSS: n, Swap: n, PageFaults: n, MajorPageFaults: n,
			OwnPageFaults: n, OwnMajorPageFaults: n, Limit: n, SwapLimit: n}}}
}

func TestMiscIsWhatOthersDidNotUse(t *testing.T) {
	// Its own group has used hardly anything: the memory of what was moved there stays where it was.
	misc := System{Name: statsapi.SystemContainerMisc, Group: used("/system", 3)}
	misc.CPUPressure = &counters.Pressure{Some: counters.Stalls{Total: 7}}
	of := func(name, path string, n uint64) System { return System{Name: name, Group: used(path, n)} }
	for name, c := range map[string]struct {
		others []System
		want   uint64
	}{
		"all of it":     {nil, 1000},
		"beside others": {[]System{of("kubelet", "/agent", 10), of("pods", "/kubepods", 200)}, 790},
		"groups in another": {
			[]System{of("kubelet", "/node/agent", 10), of("pods", "/node", 200),
				of("runtime", "/node/agent/containerd", 5)}, 800},
		"a group named twice": {
			[]System{of("kubelet", "/agent", 10), of("runtime", "/agent", 10), of("pods", "/kubepods", 200)}, 790},
		"names that begin alike": {[]System{of("kubelet", "/node", 10), of("pods", "/nodepods", 200)}, 790},
		"in the misc group":      {[]System{of("kubelet", "/system/agent", 10), of("pods", "/kubepods", 200)}, 790},
		"read later than all":    {[]System{of("pods", "/kubepods", 1001)}, 0},
		"a group that is gone": {
			[]System{{Name: "runtime", Group: Group{Path: "/gone"}}, of("pods", "/kubepods", 200)}, 800},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Sample{Node: used("/", 1000), System: append([]System{misc}, c.others...)}
			new(rest).update(s)
			want := used("/system", c.want)
			want.CPUPressure = misc.CPUPressure
			want.Memory.Limit, want.Memory.SwapLimit = 3, 3
			for _, faults := range []*uint64{&want.Memory.PageFaults, &want.Memory.MajorPageFaults,
				&want.Memory.OwnPageFaults, &want.Memory.OwnMajorPageFaults} {
				*faults = 0 // there were none since
			}
			if diff := cmp.Diff(want, s.Rest); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.System[0].CPU.Usage != 3 || s.Node.CPU.Usage != 1000 || s.Node.Memory.RSS != 1000 {
				t.Error("figures of the groups themselves were changed")
			}
		})
	}
}

func TestMiscCountsUp(t *testing.T) {
	r := new(rest)
	var last *Sample
	for _, pods := range []uint64{150, 100, 104, 90} { // of 1000 each time, as they are read a little later
		last = &Sample{Node: used("/", 1000),
			System: []System{{Name: "misc", Group: used("/system", 3)}, {Name: "pods", Group: used("/kubepods", pods)}}}
		r.update(last)
		if c := last.Rest; pods == 104 &&
			(c.CPU.Usage != 900 || c.Memory.PageFaults != 50 || c.Memory.OwnMajorPageFaults != 50 ||
				c.Memory.Usage != 896) {
			t.Errorf("%+v, %+v", c.CPU, c.Memory)
		}
	}
	if got := last.Rest.CPU.Usage; got != 910 {
		t.Errorf("%d, want 910", got)
	}
}

// TestSummarysPageFaults: a summary has those of a group's own processes, as the kubelet's has.
func TestSummarysPageFaults(t *testing.T) {
	g := used("/kubepods", 3)
	g.Memory.OwnPageFaults, g.Memory.OwnMajorPageFaults = 2, 1
	if m := g.memory(); *m.PageFaults != 2 || *m.MajorPageFaults != 1 {
		t.Errorf("%d and %d", *m.PageFaults, *m.MajorPageFaults)
	}
}

func TestNoMiscWithoutItsGroup(t *testing.T) {
	s := &Sample{Node: used("/", 1000), System: []System{{Name: "pods", Group: used("/kubepods", 1)}}}
	new(rest).update(s)
	if diff := cmp.Diff(Group{}, s.Rest); diff != "" {
		t.Error(diff)
	}
}

// What a group uses whose figures can't be read for once isn't misc's; that of a group that is gone is.
func TestNoMiscWhileAGroupCannotBeRead(t *testing.T) {
	r := new(rest)
	sample := func(change func(*Group)) *Group {
		s := &Sample{Node: used("/", 1000),
			System: []System{{Name: "misc", Group: used("/system", 3)}, {Name: "pods", Group: used("/kubepods", 100)}}}
		change(&s.System[1].Group)
		r.update(s)
		return &s.Rest
	}
	all := func(*Group) {}
	for name, failed := range map[string]func(*Group){"CPU": func(g *Group) {
		g.CPU = nil
	}, "memory": func(g *Group) { g.Memory = nil }} {
		sample(all)
		for range maxMissing {
			if got := sample(failed); got.CPU != nil || got.Memory != nil {
				t.Errorf("%s: %+v, %+v", name, got.CPU, got.Memory)
			}
		}
		if got := sample(all); got.CPU == nil || got.CPU.Usage != 900 || got.Memory.Usage != 900 {
			t.Errorf("%s: afterwards %+v, %+v", name, got.CPU, got.Memory)
		}
	}
	gone := func(g *Group) { g.CPU, g.Memory = nil, nil }
	for range maxMissing {
		sample(gone)
	}
	for range 2 {
		if got := sample(gone); got.CPU == nil || got.CPU.Usage != 1000 {
			t.Errorf("a group that is gone: %+v", got.CPU)
		}
	}
}
