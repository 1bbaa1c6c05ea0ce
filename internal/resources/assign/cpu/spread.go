package cpu

import (
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
)

// spread chooses n CPUs of as few NUMA nodes as possible, then of as few sockets, then of as many cores.
func spread(m *topology.Machine, free cpuset.CPUSet, n int) (cpuset.CPUSet, bool) {
	cores := coresOf(m, free)
	if n <= 0 || n > total(cores) {
		return cpuset.New(), n == 0
	}
	s := search{n: n, tries: maxTries}
	s.best.nodes = math.MaxInt
	s.each(nodesOf(cores), func(chosen []*core, nodes int) bool {
		left := total(chosen) - n
		return s.each(groupsOf(chosen, func(c *core) int { return c.socket }), func(chosen []*core, sockets int) bool {
			s.tries--
			so := score{nodes: nodes, sockets: sockets, cores: -min(n, len(chosen)), left: left}
			if so.compare(s.best) < 0 {
				s.best, s.region = so, slices.Clone(chosen)
			}
			return true
		})
	})
	slices.SortStableFunc(s.region, func(a, b *core) int { return a.free[0] - b.free[0] })
	var ids []int
	for thread := 0; len(ids) < n; thread++ {
		for _, c := range s.region {
			if thread < len(c.free) && len(ids) < n {
				ids = append(ids, c.free[thread])
			}
		}
	}
	return cpuset.New(ids...), true
}

// distribute chooses n CPUs of as few NUMA nodes as can give equally many each, in whole cores with WholeCores. The
// remainder comes from those of them that have the most free CPUs. Of all such sets of nodes it chooses the one that
// leaves the free CPUs distributed most evenly over all nodes. It returns false if no nodes can give equally many.
func (p Policy) distribute(m *topology.Machine, free cpuset.CPUSet, n int) (cpuset.CPUSet, bool) {
	cores := p.usable(m, free)
	unit := 1
	if p.WholeCores && len(cores) > 0 {
		unit = cores[0].size
		if slices.ContainsFunc(cores, func(c *core) bool { return c.size != unit }) {
			return cpuset.New(), false
		}
	}
	if n <= 0 || n > total(cores) || n%unit != 0 {
		return cpuset.New(), false
	}
	s := search{n: n, tries: maxTries}
	var shares []share
	best := math.MaxInt
	s.each(nodesOf(cores), func(chosen []*core, _ int) bool {
		s.tries--
		of, ok := divide(nodesOf(chosen), n, unit)
		if !ok {
			return false
		}
		unequal := 0 // how much the sum of the squares of the free CPUs of each node changes
		for _, h := range of {
			unequal += (h.free-h.taken)*(h.free-h.taken) - h.free*h.free
		}
		if unequal < best {
			best, shares = unequal, of
		}
		return true
	})
	taken := cpuset.New()
	for _, h := range shares {
		set, _ := Pick(m, h.cpus(), h.taken, p.Options)
		taken = taken.Union(set)
	}
	return taken, len(shares) > 0
}

// share is a NUMA node of which some CPUs are taken.
type share struct {
	group
	taken int
}

func (h share) cpus() cpuset.CPUSet {
	var ids []int
	for _, c := range h.cores {
		ids = append(ids, c.free...)
	}
	return cpuset.New(ids...)
}

// divide divides n CPUs in units over nodes that have as many at least.
func divide(nodes []group, n, unit int) ([]share, bool) {
	equal := n / unit / len(nodes) * unit
	shares := make([]share, len(nodes))
	for i, g := range nodes {
		if g.free < equal {
			return nil, false
		}
		g.cores = slices.Clone(g.cores) // search.each uses the slice again
		shares[i] = share{g, equal}
	}
	for rest := n - equal*len(nodes); rest > 0; rest -= unit {
		most := 0
		for i, h := range shares {
			if h.free-h.taken > shares[most].free-shares[most].taken {
				most = i
			}
		}
		shares[most].taken += unit
	}
	return shares, true
}

func nodesOf(cores []*core) []group { return groupsOf(cores, func(c *core) int { return c.node }) }
