// Package cpu chooses CPUs for containers that get CPUs of their own. It is pure.
package cpu

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
)

// Options change the choice of CPUs (KubeletConfiguration.cpuManagerPolicyOptions).
type Options struct {
	// WholeCores: only whole cores are given (full-pcpus-only).
	WholeCores bool
	// ByCache: as few last-level caches as possible (prefer-align-cpus-by-uncorecache).
	ByCache bool
}

// score says how good a choice is: less is better, earlier members count more.
type score struct {
	nodes, sockets, caches int // touched; caches are 0 without Options.ByCache
	// broken is how many cores were wholly free and aren't wholly taken, cores how many are touched.
	broken, cores int
	// left is how many free CPUs are left in the touched NUMA nodes.
	left int
}

func (s score) compare(o score) int {
	return cmp.Or(cmp.Compare(s.nodes, o.nodes), cmp.Compare(s.sockets, o.sockets), cmp.Compare(s.caches, o.caches),
		cmp.Compare(s.broken, o.broken), cmp.Compare(s.cores, o.cores), cmp.Compare(s.left, o.left))
}

// Pick chooses n of the free CPUs: of as few NUMA nodes as possible, then of as few sockets, then (with ByCache) of as
// few caches, then so that as few free cores as possible are broken, then of as few cores as possible, then where the
// fewest free CPUs are left. Of equal choices it is the one with the lowest IDs of nodes, sockets, caches and cores. It
// returns false if there are too few free CPUs, or with WholeCores too few free cores.
func Pick(m *topology.Machine, free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, bool) {
	cores := coresOf(m, free)
	if o.WholeCores {
		cores = slices.DeleteFunc(cores, func(c *core) bool { return !c.whole() })
	}
	if n <= 0 || n > total(cores) {
		return cpuset.New(), n == 0
	}
	s := search{n: n, options: o, tries: maxTries}
	s.best.nodes = math.MaxInt
	if !s.byNode(cores) {
		return cpuset.New(), false
	}
	return cpuset.New(pick(s.region, n, s.best)...), true
}

// maxTries bounds the search on machines with many nodes or caches that all differ.
const maxTries = 20_000

// search finds the best region: cores out of which a choice has the best score.
type search struct {
	n       int
	options Options
	tries   int
	best    score
	region  []*core
}

// byNode tries the sets of as few NUMA nodes as have enough free CPUs.
func (s *search) byNode(cores []*core) bool {
	return s.each(groupsOf(cores, func(c *core) int { return c.node }), func(chosen []*core, count int) bool {
		return s.bySocket(chosen, score{nodes: count, left: total(chosen) - s.n})
	})
}

func (s *search) bySocket(cores []*core, so score) bool {
	return s.each(groupsOf(cores, func(c *core) int { return c.socket }), func(chosen []*core, count int) bool {
		so.sockets = count
		if !s.options.ByCache {
			return s.compare(chosen, so)
		}
		return s.each(groupsOf(chosen, func(c *core) int { return c.cache }), func(chosen []*core, count int) bool {
			so.caches = count
			return s.compare(chosen, so)
		})
	})
}

// compare compares the best choice out of these cores with the best so far. It returns false if there is none.
func (s *search) compare(cores []*core, so score) (ok bool) {
	s.tries--
	breaks := 1
	if s.options.WholeCores {
		breaks = 0
	}
	so.broken, so.cores, ok = stockOf(cores).cost(s.n, breaks)
	if ok && so.compare(s.best) < 0 {
		s.best, s.region = so, slices.Clone(cores)
	}
	return ok
}

// each calls use with the cores of each set of as few groups as have enough free CPUs, the lowest keys first.
// If use returns false for all of them, sets of more groups are tried. Of groups that are alike only the first ones
// are. use must not keep the slice.
func (s *search) each(groups []group, use func(cores []*core, count int) bool) (found bool) {
	chosen := make([]bool, len(groups))
	var cores []*core
	var choose func(at, left, free, count int)
	choose = func(at, left, free, count int) {
		if left == 0 {
			if free < s.n || s.tries <= 0 {
				return
			}
			cores = cores[:0]
			for i, g := range groups {
				if chosen[i] {
					cores = append(cores, g.cores...)
				}
			}
			found = use(cores, count) || found
			return
		}
		for i := at; i <= len(groups)-left; i++ {
			if g := groups[i]; g.twin >= 0 && !chosen[g.twin] {
				continue
			}
			chosen[i] = true
			choose(i+1, left-1, free+groups[i].free, count)
			chosen[i] = false
		}
	}
	for count := fewest(groups, s.n); count <= len(groups) && !found; count++ {
		choose(0, count, 0, count)
	}
	return found
}

// fewest returns how many groups have n free CPUs at the least.
func fewest(groups []group, n int) (count int) {
	sizes := make([]int, len(groups))
	for i, g := range groups {
		sizes[i] = g.free
	}
	slices.Sort(sizes)
	for ; n > 0; count++ {
		n -= sizes[len(sizes)-1-count]
	}
	return count
}

// core is a core with its free CPUs.
type core struct {
	node, socket, cache int
	// free are the free CPUs by ascending ID, size is how many are online.
	free []int
	size int
}

func (c core) whole() bool { return len(c.free) == c.size }

// coresOf returns the cores with free CPUs by the ID of the core.
func coresOf(m *topology.Machine, free cpuset.CPUSet) []*core {
	byID := make(map[int]*core, len(m.CPUs))
	cores, ids := make([]core, 0, len(m.CPUs)), make([]int, len(m.CPUs))
	for _, c := range m.CPUs { // the first one of a core has the core's ID
		k := byID[c.Core]
		if k == nil {
			cores = append(cores, core{node: c.Node, socket: c.Socket, cache: c.Cache})
			k = &cores[len(cores)-1]
			byID[c.Core] = k
		}
		k.size++
	}
	for i := range cores {
		k := &cores[i]
		k.free, ids = ids[:0:k.size], ids[k.size:]
	}
	for _, c := range m.CPUs {
		if k := byID[c.Core]; free.Contains(c.ID) {
			k.free = append(k.free, c.ID)
		}
	}
	out := make([]*core, 0, len(cores))
	for i := range cores {
		if len(cores[i].free) > 0 {
			out = append(out, &cores[i])
		}
	}
	return out
}

func total(cores []*core) (n int) {
	for _, c := range cores {
		n += len(c.free)
	}
	return n
}

// group is a NUMA node, a socket or a cache with its cores.
type group struct {
	free  int
	cores []*core
	// twin is the index of the last group before this one that is like it; -1 if there is none.
	twin int
}

// groupsOf groups cores by a key, in ascending order.
func groupsOf(cores []*core, key func(*core) int) []group {
	order := func(a, b *core) int { return key(a) - key(b) }
	if !slices.IsSortedFunc(cores, order) {
		cores = slices.Clone(cores)
		slices.SortStableFunc(cores, order)
	}
	var out []group
	for begin := 0; begin < len(cores); {
		g := group{twin: -1}
		end := begin
		for ; end < len(cores) && key(cores[end]) == key(cores[begin]); end++ {
			g.free += len(cores[end].free)
		}
		g.cores = cores[begin:end]
		for i := len(out) - 1; i >= 0 && g.twin < 0; i-- {
			if alike(g.cores, out[i].cores) {
				g.twin = i
			}
		}
		out = append(out, g)
		begin = end
	}
	return out
}

// alike reports whether choices out of a and b have the same scores: their cores are the same in the same order, except
// for their IDs and those of their caches.
func alike(a, b []*core) bool {
	if len(a) != len(b) {
		return false
	}
	cache := func(cores []*core, i int) int { // of the first core with the same cache
		return slices.IndexFunc(cores, func(c *core) bool { return c.cache == cores[i].cache })
	}
	for i := range a {
		if a[i].socket != b[i].socket || len(a[i].free) != len(b[i].free) || a[i].size != b[i].size ||
			cache(a, i) != cache(b, i) {
			return false
		}
	}
	return true
}

// WholeCores returns those of the CPUs whose core is in the set as a whole.
func WholeCores(m *topology.Machine, set cpuset.CPUSet) cpuset.CPUSet {
	var ids []int
	for _, c := range coresOf(m, set) {
		if c.whole() {
			ids = append(ids, c.free...)
		}
	}
	return cpuset.New(ids...)
}
