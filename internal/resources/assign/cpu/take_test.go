package cpu_test

import (
	"slices"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
)

// machine draws a machine of at most most CPUs: cores of different sizes in caches, sockets and nodes of which none has
// to lie in another, numbered at random.
func machine(t *rapid.T, most int) (m topology.Machine) {
	ids := rapid.Permutation(seq(most+3)).Draw(t, "ids")[:rapid.IntRange(1, most).Draw(t, "count")]
	nested := rapid.Bool().Draw(t, "nested")
	sizes := rapid.SampledFrom([][]int{{1}, {2}, {4}, {1, 2}, {2, 3, 4}}).Draw(t, "sizes")
	for len(ids) > 0 {
		size := min(len(ids), rapid.SampledFrom(sizes).Draw(t, "size"))
		core := topology.CPU{Core: slices.Min(ids[:size]), Socket: rapid.IntRange(0, 2).Draw(t, "socket")}
		core.Node = core.Socket*2 + rapid.IntRange(0, 1).Draw(t, "node")
		if !nested {
			core.Node = rapid.IntRange(0, 3).Draw(t, "node")
		}
		core.Cache = core.Node*10 + core.Socket*100 + rapid.IntRange(0, 2).Draw(t, "cache")
		for _, id := range ids[:size] {
			core.ID = id
			m.CPUs = append(m.CPUs, core)
		}
		ids = ids[size:]
	}
	slices.SortFunc(m.CPUs, func(a, b topology.CPU) int { return a.ID - b.ID })
	return m
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// quality measures a choice: nodes, sockets, caches, broken cores, cores, and free CPUs left in the nodes.
func quality(m topology.Machine, free, taken cpuset.CPUSet, o cpu.Options) [6]int {
	nodes, sockets, caches, cores := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range m.CPUs {
		if taken.Contains(c.ID) {
			nodes[c.Node], sockets[c.Socket], caches[c.Cache], cores[c.Core] = true, true, true, true
		}
	}
	broken, left := 0, 0
	for core := range cores {
		all, some := true, false
		for _, c := range m.CPUs {
			if c.Core == core {
				all = all && free.Contains(c.ID)
				some = some || !taken.Contains(c.ID)
			}
		}
		if all && some {
			broken++
		}
	}
	for _, c := range m.CPUs {
		if nodes[c.Node] && free.Contains(c.ID) && !taken.Contains(c.ID) {
			left++
		}
	}
	if !o.ByCache {
		caches = nil
	}
	return [6]int{len(nodes), len(sockets), len(caches), broken, len(cores), left}
}

// subsets calls use with each set of n of the IDs.
func subsets(ids []int, n int, use func(cpuset.CPUSet)) {
	chosen := make([]int, 0, n)
	var choose func(at int)
	choose = func(at int) {
		if len(chosen) == n {
			use(cpuset.New(chosen...))
			return
		}
		for i := at; i <= len(ids)-(n-len(chosen)); i++ {
			chosen = append(chosen, ids[i])
			choose(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	choose(0)
}

// TestPickIsBest: no choice is better, by exhaustive search.
func TestPickIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := machine(t, 12)
		free := cpuset.New(rapid.SliceOfDistinct(rapid.SampledFrom(m.Online().List()), rapid.ID).Draw(t, "free")...)
		n := rapid.IntRange(0, free.Size()+1).Draw(t, "n")
		o := cpu.Options{ByCache: rapid.Bool().Draw(t, "by cache"), WholeCores: rapid.Bool().Draw(t, "whole cores")}
		got, ok := cpu.Pick(&m, free, n, o)
		var best *[6]int
		if n <= free.Size() {
			subsets(free.List(), n, func(s cpuset.CPUSet) {
				q := quality(m, free, s, o)
				if o.WholeCores && !whole(m, s) {
					return
				}
				if best == nil || slices.Compare(q[:], best[:]) < 0 {
					best = &q
				}
			})
		}
		if ok != (best != nil) {
			t.Fatalf("%v of %v: found %v, want %v", n, free, ok, best)
		}
		if !ok {
			return
		}
		if got.Size() != n || !got.IsSubsetOf(free) {
			t.Fatalf("%v for %d of %v", got, n, free)
		}
		// What is left counts cores of which a part is free only without WholeCores.
		if q := quality(m, free, got, o); q != *best && !(o.WholeCores && slices.Equal(q[:5], best[:5])) {
			t.Fatalf("%v for %d of %v is %v, the best is %v: %+v", got, n, free, q, *best, m.CPUs)
		}
	})
}

// whole reports whether the set has whole cores only.
func whole(m topology.Machine, s cpuset.CPUSet) bool {
	return !slices.ContainsFunc(m.CPUs, func(c topology.CPU) bool {
		return slices.ContainsFunc(m.CPUs, func(d topology.CPU) bool {
			return c.Core == d.Core && s.Contains(c.ID) != s.Contains(d.ID)
		})
	})
}

// grid is a machine with spread numbers: the second threads come after all first ones.
func grid(sockets, nodes, caches, cores, threads int) (m topology.Machine) {
	all := sockets * nodes * caches * cores
	for i := range all * threads {
		core := i % all
		cache := core / cores
		m.CPUs = append(m.CPUs, topology.CPU{ID: i, Core: core, Cache: cache * cores, Node: cache / caches,
			Socket: cache / caches / nodes})
	}
	return m
}

// TestPick: where equal choices are, and choices that a person would expect.
func TestPick(t *testing.T) {
	two := grid(2, 1, 1, 4, 2) // node 0: 0-3,8-11, node 1: 4-7,12-15
	hybrid := topology.Machine{CPUs: []topology.CPU{{ID: 0}, {ID: 1}, {ID: 2, Core: 2}, {ID: 3, Core: 2}, {ID: 4, Core: 4}, {ID: 5, Core: 5}}}
	for _, c := range []struct {
		name string
		m    topology.Machine
		free string
		n    int
		o    cpu.Options
		want string
	}{
		{"a core", two, "0-15", 2, cpu.Options{}, "0,8"},
		{"a node", two, "0-15", 8, cpu.Options{}, "0-3,8-11"},
		{"a bit more than a node", two, "0-15", 9, cpu.Options{}, "0-4,8-11"},
		{"the node that is filled most", two, "0-3,4-5,8-11,12-13", 4, cpu.Options{}, "4-5,12-13"},
		{"the half of a core that is in use", two, "0-8,10-15", 1, cpu.Options{}, "1"},
		{"whole cores before halves", two, "0,1,2,10", 2, cpu.Options{}, "2,10"},
		{"one half, so that no core is broken", two, "0,1,2,10", 3, cpu.Options{}, "0,2,10"},
		{"no half of a core", two, "0-15", 3, cpu.Options{WholeCores: true}, ""},
		{"too few whole cores", two, "0-7", 2, cpu.Options{WholeCores: true}, ""},
		{"a cache that fits", grid(1, 1, 2, 2, 2), "1-3,5-7", 4, cpu.Options{ByCache: true}, "2-3,6-7"},
		{"cores, as caches don't count", grid(1, 1, 2, 2, 2), "1-3,5-7", 4, cpu.Options{}, "1-2,5-6"},
		{"cores of two sizes", hybrid, "0-5", 3, cpu.Options{WholeCores: true}, "0-1,4"},
		{"a socket of two", grid(2, 2, 1, 2, 1), "1-7", 4, cpu.Options{}, "4-7"},
		{"nothing", two, "0", 0, cpu.Options{}, ""},
	} {
		free, err := cpuset.Parse(c.free)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := cpu.Pick(&c.m, free, c.n, c.o); got.String() != c.want {
			t.Errorf("%s: %d of %s are %s, want %s", c.name, c.n, c.free, got, c.want)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, c := range []struct {
		name    string
		m       topology.Machine
		used, n int
		o       cpu.Options
	}{
		{"empty, 8 nodes of 32 cores", grid(8, 1, 4, 8, 2), 0, 130, cpu.Options{}},
		{"used, 8 nodes of 32 cores", grid(8, 1, 4, 8, 2), 97, 130, cpu.Options{}},
		{"by cache, used", grid(8, 1, 4, 8, 2), 97, 130, cpu.Options{ByCache: true}},
		{"by cache, two nodes of 16 caches, used", grid(2, 1, 16, 8, 2), 97, 64, cpu.Options{ByCache: true}},
		{"16 nodes, used", grid(2, 8, 2, 8, 2), 97, 200, cpu.Options{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			free := c.m.Online().List()
			for i := range c.used {
				free[i*i%len(free)] = -1
			}
			set := cpuset.New(slices.DeleteFunc(free, func(id int) bool { return id < 0 })...)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := cpu.Pick(&c.m, set, c.n, c.o); !ok {
					b.Fatal("doesn't fit")
				}
			}
		})
	}
}
