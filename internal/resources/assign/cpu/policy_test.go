package cpu_test

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
)

// withNodes adds the NUMA nodes that the CPUs are in.
func withNodes(m topology.Machine, bare ...int) *topology.Machine {
	ids := map[int]bool{}
	for _, c := range m.CPUs {
		ids[c.Node] = true
	}
	for _, id := range bare {
		ids[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		m.Nodes = append(m.Nodes, topology.Node{ID: id})
	}
	return &m
}

func parse(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestHints(t *testing.T) {
	two := withNodes(grid(2, 1, 1, 4, 2))     // node 0: 0-3,8-11, node 1: 4-7,12-15
	four := withNodes(grid(2, 2, 1, 2, 1))    // sockets 0-3, 4-7 of nodes of 2 CPUs
	bare := withNodes(grid(2, 1, 1, 4, 2), 7) // node 7 has no CPUs
	gap := withNodes(topology.Machine{CPUs: []topology.CPU{{ID: 0}, {ID: 1, Core: 1, Node: 8}}}, 2)
	type hints = map[align.Mask]bool
	for _, c := range []struct {
		name string
		m    *topology.Machine
		free string
		n    int
		p    cpu.Policy
		want hints
	}{
		{"all is free", two, "0-15", 8, cpu.Policy{}, hints{1: true, 2: true, 3: false}},
		{"one node isn't", two, "1-15", 8, cpu.Policy{}, hints{2: true, 3: false}},
		{"none is", two, "1-3,8-11,12-15", 8, cpu.Policy{}, hints{3: false}},
		{"more than a node", two, "0-15", 9, cpu.Policy{}, hints{3: true}},
		{"too many", two, "0-15", 17, cpu.Policy{}, hints{}},
		{"nothing", two, "0-15", 0, cpu.Policy{}, hints{}},
		{"halves of cores", two, "0-7,12-15", 4, cpu.Policy{}, hints{1: true, 2: true, 3: false}},
		{"whole cores", two, "0-7,12-15", 4, cpu.Policy{Options: cpu.Options{WholeCores: true}}, hints{2: true, 3: false}},
		{"a socket", four, "0-7", 2, cpu.Policy{BySocket: true}, hints{1: true, 2: true, 3: true, 4: true, 5: false, 6: false, 7: false, 8: true, 9: false, 10: false, 11: false, 12: true, 13: false, 14: false, 15: false}},
		{"nodes of a socket", four, "0-5", 3, cpu.Policy{BySocket: true}, hints{3: true, 5: true, 6: true, 7: false, 11: false, 13: false, 14: false, 15: false}},
		{"nodes without CPUs", bare, "0-15", 8, cpu.Policy{}, hints{1: true, 2: true, 3: false}},
		{"nodes with gaps", gap, "0-1", 2, cpu.Policy{}, hints{5: true}},
		// An init container has both nodes; the kubelet has no hint of one node for the next container.
		{"kubernetes/kubernetes#110306", two, "0-3,8-11,4-7,12-15", 2, cpu.Policy{}, hints{1: true, 2: true, 3: false}},
	} {
		got := hints{}
		for _, h := range c.p.Hints(c.m, parse(t, c.free), c.n) {
			got[h.Mask] = h.Preferred
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %d of %s: %v, want %v", c.name, c.n, c.free, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	two := withNodes(grid(2, 1, 1, 4, 2))  // node 0: 0-3,8-11, node 1: 4-7,12-15
	four := withNodes(grid(2, 2, 1, 2, 1)) // sockets 0-3, 4-7 of nodes of 2 CPUs
	hybrid := withNodes(topology.Machine{CPUs: []topology.CPU{{ID: 0}, {ID: 1}, {ID: 2, Core: 2}, {ID: 3, Core: 2}, {ID: 4, Core: 4, Node: 1}}})
	whole, distribute, coresApart := cpu.Policy{Options: cpu.Options{WholeCores: true}}, cpu.Policy{AcrossNodes: true}, cpu.Policy{AcrossCores: true}
	both := cpu.Policy{Options: cpu.Options{WholeCores: true}, AcrossNodes: true}
	for _, c := range []struct {
		name     string
		m        *topology.Machine
		free     string
		n        int
		near     align.Mask
		reusable string
		p        cpu.Policy
		want     string
	}{
		{"anywhere", two, "0-15", 2, 0, "", cpu.Policy{}, "0,8"},
		{"near", two, "0-15", 2, 2, "", cpu.Policy{}, "4,12"},
		{"as far as possible near", two, "0-4,8-15", 6, 2, "", cpu.Policy{}, "0,4,12-15"},
		{"the same socket", four, "0-7", 3, 1, "", cpu.Policy{BySocket: true}, "0-2"},
		{"the same socket isn't enough", four, "0,2,4-7", 3, 2, "", cpu.Policy{BySocket: true}, "0,2,4"},
		{"again", two, "0-15", 2, 0, "5,13", cpu.Policy{}, "5,13"},
		{"a part again", two, "1-3,9-11", 2, 0, "4-7,12-15", cpu.Policy{}, "4,12"},
		{"again, and more of the core", two, "1-7,9-15", 2, 0, "0,8", cpu.Policy{}, "0,8"},
		{"again, and others", two, "1-3,8-11", 4, 0, "0", cpu.Policy{}, "0-1,8-9"},
		{"again, on a node that isn't better", two, "0-3,8-11", 4, 0, "4,12", cpu.Policy{}, "0,4,8,12"},
		{"not again on another node", two, "0-3,8-11", 4, 1, "4,12", cpu.Policy{}, "0-1,8-9"},
		{"whole cores near", two, "0-15", 4, 2, "", whole, "4-5,12-13"},
		{"whole cores, one of them near", two, "0-4,8-12", 4, 2, "", whole, "0,4,8,12"},
		{"halves near don't count", two, "0-3,4-7,8-11", 2, 2, "", whole, "0,8"},
		{"cores of two sizes", hybrid, "0-4", 4, 2, "", whole, "0-3"},
		{"too few", two, "0-4", 6, 0, "", cpu.Policy{}, ""},
		{"too few whole cores", two, "0-7", 2, 0, "", whole, ""},
		{"one node, not distributed", two, "0-15", 8, 0, "", distribute, "0-3,8-11"},
		{"equally", two, "0-15", 10, 0, "", distribute, "0-2,4-6,8-9,12-13"},
		{"cores equally", two, "0-15", 12, 0, "", both, "0-2,4-6,8-10,12-14"},
		{"one core more where more is free", two, "0-2,4-7,8-10,12-15", 10, 0, "", both, "0-1,4-6,8-9,12-14"},
		{"not equally", two, "0-3,8-11,4", 9, 0, "", distribute, "0-4,8-11"},
		{"those that leave equally many", four, "0,2-7", 3, 0, "", distribute, "2-4"},
		{"cores apart", two, "0-15", 4, 0, "", coresApart, "0-3"},
		{"cores apart, then the others of the cores", two, "0-1,8-9", 3, 0, "", coresApart, "0-1,8"},
		{"cores apart, on the node that has them", two, "0,8,5,6", 2, 0, "", coresApart, "5-6"},
		{"cores apart, too few", two, "0-1", 3, 0, "", coresApart, ""},
	} {
		ask := cpu.Ask{Count: c.n, Near: c.near, Reusable: parse(t, c.reusable)}
		if got, ok := c.p.Choose(c.m, parse(t, c.free), ask); got.String() != c.want || ok != (c.want != "") {
			t.Errorf("%s: %d of %s: %s, want %s", c.name, c.n, c.free, got, c.want)
		}
	}
}

// TestChooseIsValid: the choice has the right size, is of what can be taken, near as far as possible, and uses again
// what it can.
func TestChooseIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := withNodes(machine(t, 16))
		some := rapid.SliceOfDistinct(rapid.SampledFrom(m.Online().List()), rapid.ID)
		p := cpu.Policy{Options: cpu.Options{WholeCores: rapid.Bool().Draw(t, "whole cores")}, AcrossNodes: rapid.Bool().Draw(t, "across nodes"),
			BySocket: rapid.Bool().Draw(t, "by socket")}
		p.AcrossCores = !p.WholeCores && !p.AcrossNodes && rapid.Bool().Draw(t, "across cores")
		free, reusable := cpuset.New(some.Draw(t, "free")...), cpuset.New(some.Draw(t, "reusable")...)
		ask := cpu.Ask{Count: rapid.IntRange(1, 16).Draw(t, "count"), Reusable: reusable,
			Near: align.Mask(rapid.IntRange(0, int(align.All(len(m.Nodes)))).Draw(t, "near"))}
		all := free.Union(reusable)
		got, ok := p.Choose(m, free, ask)
		if _, can := cpu.Pick(m, all, ask.Count, p.Options); ok != can {
			t.Fatalf("%v, want %v", ok, can)
		}
		if !ok {
			return
		}
		if got.Size() != ask.Count || !got.IsSubsetOf(all) || p.WholeCores && !whole(*m, got) {
			t.Fatalf("%v for %+v of %v", got, ask, all)
		}
		if p.WholeCores || p.BySocket {
			return
		}
		near := cpuset.New()
		for _, c := range m.CPUs {
			i := slices.IndexFunc(m.Nodes, func(n topology.Node) bool { return n.ID == c.Node })
			if ask.Near == 0 || ask.Near>>i&1 == 1 {
				near = near.Union(cpuset.New(c.ID))
			}
		}
		near = near.Intersection(all)
		again := near.Intersection(reusable)
		if got.Intersection(near).Size() != min(ask.Count, near.Size()) || got.Intersection(again).Size() < min(ask.Count, again.Size()) {
			t.Fatalf("%v for %+v of %v", got, ask, all)
		}
	})
}

func TestPolicyOf(t *testing.T) {
	one := topology.Machine{CPUs: []topology.CPU{{}, {ID: 1, Core: 1, Socket: 1}}}
	p, err := cpu.PolicyOf(&one, map[string]string{"full-pcpus-only": "true", "strict-cpu-reservation": "1", "align-by-socket": "false",
		"distribute-cpus-across-numa": "t"})
	if want := (cpu.Policy{Options: cpu.Options{WholeCores: true}, AcrossNodes: true, Strict: true}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := cpu.PolicyOf(&one, map[string]string{"align-by-socket": "true"}); err == nil {
		t.Errorf("two sockets of one NUMA node: %+v", p)
	}
	two := grid(2, 1, 1, 1, 1)
	if p, err := cpu.PolicyOf(&two, map[string]string{"align-by-socket": "true", "prefer-align-cpus-by-uncorecache": "true",
		"distribute-cpus-across-cores": "true"}); err != nil || p != (cpu.Policy{Options: cpu.Options{ByCache: true}, AcrossCores: true, BySocket: true}) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestReserve: reserved CPUs can be a half of a core.
func TestReserve(t *testing.T) {
	m := grid(1, 1, 1, 2, 2)
	if got, ok := (cpu.Policy{Options: cpu.Options{WholeCores: true}}).Reserve(&m, 1); !ok || !got.Equals(cpuset.New(0)) {
		t.Errorf("%v, %v", got, ok)
	}
}

func BenchmarkHints(b *testing.B) {
	m := withNodes(grid(2, 8, 2, 8, 2))
	free := m.Online()
	b.ReportAllocs()
	for b.Loop() {
		if len(cpu.Policy{}.Hints(m, free, 40)) == 0 {
			b.Fatal("no hints")
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	m := withNodes(grid(8, 1, 4, 8, 2))
	free := m.Online()
	for name, p := range map[string]cpu.Policy{"packed": {}, "across nodes": {AcrossNodes: true}, "across cores": {AcrossCores: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := p.Choose(m, free, cpu.Ask{Count: 130}); !ok {
					b.Fatal("doesn't fit")
				}
			}
		})
	}
}
