package cpu

import (
	"errors"
	"slices"
	"strconv"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
)

// Policy is the static policy of the CPU manager with all its options.
type Policy struct {
	Options
	// AcrossNodes: a container that needs several NUMA nodes gets as many CPUs of each (distribute-cpus-across-numa).
	AcrossNodes bool
	// AcrossCores: as many cores as possible (distribute-cpus-across-cores).
	AcrossCores bool
	// BySocket: all NUMA nodes of a socket are as good as one (align-by-socket).
	BySocket bool
	// Strict: containers without CPUs of their own can't use the reserved CPUs (strict-cpu-reservation). It has no
	// effect in this package, as reserved CPUs are never free.
	Strict bool
}

// PolicyOf returns the policy with the options of a valid KubeletConfiguration.cpuManagerPolicyOptions. It fails if
// they aren't possible on this machine.
func PolicyOf(m *topology.Machine, options map[string]string) (Policy, error) {
	on := func(name string) bool {
		value, _ := strconv.ParseBool(options[name])
		return value
	}
	p := Policy{
		Options:     Options{WholeCores: on("full-pcpus-only"), ByCache: on("prefer-align-cpus-by-uncorecache")},
		AcrossNodes: on("distribute-cpus-across-numa"),
		AcrossCores: on("distribute-cpus-across-cores"),
		BySocket:    on("align-by-socket"),
		Strict:      on("strict-cpu-reservation"),
	}
	sockets, nodes := map[int]bool{}, map[int]bool{}
	for _, c := range m.CPUs {
		sockets[c.Socket], nodes[c.Node] = true, true
	}
	if p.BySocket && len(sockets) > len(nodes) {
		return Policy{}, errors.New("cpuManagerPolicyOptions[align-by-socket]: this machine has more sockets than " +
			"NUMA nodes; remove the option")
	}
	return p, nil
}

// Hints returns the sets of NUMA nodes that have at least n free CPUs, only of nodes with CPUs. Preferred are those of
// as few nodes as would be enough if all CPUs of the machine were free; with BySocket also those of as few sockets.
//
// CPUs of init containers of the same pod count as free. Unlike the kubelet's, a set needn't contain all of them: a
// small container after a large init container would have no preferred set (kubernetes/kubernetes#110306).
func (p Policy) Hints(m *topology.Machine, free cpuset.CPUSet, n int) []align.Hint {
	if n <= 0 || len(m.Nodes) > align.MaxNodes {
		return nil
	}
	sums, bare := p.sums(m, free)
	hints := make([]align.Hint, 0, len(sums))
	width, sockets := len(m.Nodes), len(m.Nodes)
	for mask, s := range sums {
		mask := align.Mask(mask)
		if mask&bare != 0 {
			continue
		}
		if int(s.online) >= n {
			width, sockets = min(width, mask.Width()), min(sockets, s.sockets.Width())
		}
		if int(s.free) >= n {
			hints = append(hints, align.Hint{Mask: mask})
		}
	}
	for i := range hints {
		h := &hints[i]
		h.Preferred = h.Mask.Width() == width || p.BySocket && sums[h.Mask].sockets.Width() == sockets
	}
	return hints
}

// sum counts the CPUs of a set of NUMA nodes. With BySocket it has the indexes of their sockets: a machine with that
// option has at most as many sockets as nodes.
type sum struct {
	online, free int32
	sockets      align.Mask
}

// sums returns the sum of each set of nodes, and the nodes without CPUs. With WholeCores only CPUs of whole free cores
// are free.
func (p Policy) sums(m *topology.Machine, free cpuset.CPUSet) (sums []sum, bare align.Mask) {
	nodes, sockets := make([]sum, len(m.Nodes)), map[int]int{}
	for _, c := range m.CPUs {
		n := &nodes[indexOf(m, c.Node)]
		n.online++
		if _, ok := sockets[c.Socket]; !ok {
			sockets[c.Socket] = len(sockets)
		}
		if p.BySocket {
			n.sockets |= 1 << sockets[c.Socket]
		}
	}
	for _, c := range p.usable(m, free) {
		nodes[indexOf(m, c.node)].free += int32(len(c.free))
	}
	sums = make([]sum, 1<<len(nodes))
	for i, n := range nodes {
		if n.online == 0 {
			bare |= 1 << i
		}
		for mask := range 1 << i {
			s := sums[mask]
			sums[mask|1<<i] = sum{s.online + n.online, s.free + n.free, s.sockets | n.sockets}
		}
	}
	return sums, bare
}

// usable returns the cores of which CPUs can be taken.
func (p Policy) usable(m *topology.Machine, free cpuset.CPUSet) []*core {
	cores := coresOf(m, free)
	if p.WholeCores {
		cores = slices.DeleteFunc(cores, func(c *core) bool { return !c.whole() })
	}
	return cores
}

func indexOf(m *topology.Machine, node int) int {
	i, _ := slices.BinarySearchFunc(m.Nodes, node, func(n topology.Node, id int) int { return n.ID - id })
	return i
}

// Ask is a container's wish for CPUs of its own.
type Ask struct {
	Count int
	// Near are the NUMA nodes of which as many as possible are taken, with BySocket all nodes of their sockets; 0 says
	// that it doesn't matter.
	Near align.Mask
	// Reusable are CPUs of init containers of the pod that end before this container starts. They are taken before free
	// ones: a pod shouldn't hold more CPUs than it requests.
	Reusable cpuset.CPUSet
}

// Choose chooses CPUs for a container; false if there are too few, or with WholeCores too few whole cores.
func (p Policy) Choose(m *topology.Machine, free cpuset.CPUSet, a Ask) (cpuset.CPUSet, bool) {
	free = free.Union(a.Reusable)
	near := p.near(m, free, a.Near)
	all := 0
	for _, c := range p.usable(m, near) {
		all += len(c.free)
	}
	for n := min(all, a.Count); n >= 0; n-- {
		first, ok := p.reuse(m, near, a.Reusable, n)
		if !ok {
			continue // cores of several sizes don't add up to n
		}
		if rest, ok := p.reuse(m, free.Difference(first), a.Reusable.Difference(first), a.Count-n); ok {
			return first.Union(rest), true
		}
		if !p.WholeCores {
			break
		}
	}
	return cpuset.New(), false
}

// Reserve chooses the CPUs that no container gets for itself, if the configuration only says how many they are. As the
// kubelet's, they may be parts of cores even with WholeCores; the others of these cores can't be taken then.
func (p Policy) Reserve(m *topology.Machine, n int) (cpuset.CPUSet, bool) {
	p.WholeCores = false
	return p.byOptions(m, m.Online(), n)
}

// near returns the free CPUs of the NUMA nodes, or of their sockets.
func (p Policy) near(m *topology.Machine, free cpuset.CPUSet, nodes align.Mask) cpuset.CPUSet {
	if nodes == 0 || nodes == align.All(len(m.Nodes)) {
		return free
	}
	in := func(c topology.CPU) bool { return nodes&(1<<indexOf(m, c.Node)) != 0 }
	sockets := map[int]bool{}
	for _, c := range m.CPUs {
		sockets[c.Socket] = sockets[c.Socket] || in(c)
	}
	var ids []int
	for _, c := range m.CPUs {
		if free.Contains(c.ID) && (in(c) || p.BySocket && sockets[c.Socket]) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// reuse chooses n of the CPUs, first of all those that can be used again.
func (p Policy) reuse(m *topology.Machine, free, reusable cpuset.CPUSet, n int) (cpuset.CPUSet, bool) {
	if reusable = reusable.Intersection(free); p.WholeCores {
		reusable = WholeCores(m, reusable)
	}
	if n <= reusable.Size() {
		if set, ok := p.byOptions(m, reusable, n); ok {
			return set, true
		}
	}
	best, ok := p.byOptions(m, free, n)
	if ok && !reusable.IsSubsetOf(best) && n > reusable.Size() {
		if rest, ok := p.byOptions(m, free.Difference(reusable), n-reusable.Size()); ok {
			return rest.Union(reusable), true
		}
	}
	return best, ok
}

// byOptions chooses n of the CPUs.
func (p Policy) byOptions(m *topology.Machine, free cpuset.CPUSet, n int) (cpuset.CPUSet, bool) {
	switch {
	case p.AcrossCores:
		return spread(m, free, n)
	case p.AcrossNodes:
		if set, ok := p.distribute(m, free, n); ok {
			return set, true
		}
	}
	return Pick(m, free, n, p.Options)
}
