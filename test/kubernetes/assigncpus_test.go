package kubelet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"
)

const (
	cpuMachines = 40
	cpuPods     = 12 // that come and go on one machine
)

// machine is deckhand's form of a machine.
type machine struct {
	CPUs  []cpu
	Nodes []node
}

type cpu struct{ ID, Core, Socket, Node, Cache int }

type node struct {
	ID, Memory int
	HugePages  []struct{ Size, Count int }
	Distances  []int
}

// randomMachine returns a machine of at most 64 CPUs, whose NUMA nodes are parts of sockets or the other way round.
func randomMachine(r *rand.Rand) (m machine) {
	sockets, nodes, caches, cores, threads := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(2), 1+r.IntN(4), 1+r.IntN(2)
	if r.IntN(4) == 0 {
		threads = 4
	}
	shared := r.IntN(4) == 0 // all sockets in one node
	count := sockets * nodes * caches * cores
	number := func(core, thread int) int { return core*threads + thread }
	switch r.IntN(3) {
	case 0:
		number = func(core, thread int) int { return thread*count + core }
	case 1:
		ids := r.Perm(count * threads)
		number = func(core, thread int) int { return ids[core*threads+thread] }
	}
	lowest := func(from, to int) int { // of some cores
		low := number(from, 0)
		for core := from; core < to; core++ {
			for thread := range threads {
				low = min(low, number(core, thread))
			}
		}
		return low
	}
	for core := range count {
		cache := core / cores
		for thread := range threads {
			c := cpu{ID: number(core, thread), Core: lowest(core, core+1), Cache: lowest(cache*cores, (cache+1)*cores), Node: cache / caches, Socket: cache / caches / nodes}
			if shared {
				c.Node = 0
			}
			m.CPUs = append(m.CPUs, c)
		}
	}
	slices.SortFunc(m.CPUs, func(a, b cpu) int { return a.ID - b.ID })
	for id := range 1 + slices.MaxFunc(m.CPUs, func(a, b cpu) int { return a.Node - b.Node }).Node {
		m.Nodes = append(m.Nodes, node{ID: id})
	}
	return m
}

func (m *machine) topology() *topology.CPUTopology {
	details := topology.CPUDetails{}
	for _, c := range m.CPUs {
		details[c.ID] = topology.CPUInfo{CoreID: c.Core, SocketID: c.Socket, NUMANodeID: c.Node, UncoreCacheID: c.Cache}
	}
	return &topology.CPUTopology{NumCPUs: len(m.CPUs), NumCores: details.Cores().Size(), NumSockets: details.Sockets().Size(),
		NumNUMANodes: details.NUMANodes().Size(), NumUncoreCache: details.UncoreCaches().Size(), CPUDetails: details}
}

// affinity is the kubelet's topology manager: it answers what it was told.
type affinity struct{ hint topologymanager.TopologyHint }

func (a *affinity) GetAffinity(string, string) topologymanager.TopologyHint { return a.hint }
func (a *affinity) GetPolicy() topologymanager.Policy                       { return topologymanager.NewNonePolicy() }
func (a *affinity) Name() string                                            { return "test" }

// options are the options that each set of options is made of.
var options = []map[string]string{
	{},
	{"full-pcpus-only": "true"},
	{"prefer-align-cpus-by-uncorecache": "true"},
	{"full-pcpus-only": "true", "prefer-align-cpus-by-uncorecache": "true"},
	{"distribute-cpus-across-numa": "true"},
	{"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
	{"distribute-cpus-across-cores": "true"},
	{"align-by-socket": "true"},
	{"strict-cpu-reservation": "true", "align-by-socket": "true", "full-pcpus-only": "true"},
}

// compareCPUs: on random machines with pods that come and go, deckhand's hints are the kubelet's, both admit the same
// containers, and deckhand's choice of CPUs isn't worse.
func compareCPUs(t *testing.T, d *deckhand, r *rand.Rand) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CPUManagerPolicyAlphaOptions, true)
	for range cpuMachines * *rounds {
		s := newCPUs(t, d, r)
		if s == nil {
			continue
		}
		for i := range cpuPods {
			s.admit(i)
			if s.r.IntN(2) == 0 {
				s.remove()
			}
		}
	}
}

// cpus is a machine with the kubelet's policy on it.
type cpus struct {
	t       *testing.T
	d       *deckhand
	r       *rand.Rand
	m       machine
	on      map[string]string
	hint    *affinity
	policy  cpumanager.Policy
	state   cpustate.State
	pods    []*v1.Pod
	reserve cpuset.CPUSet
}

func newCPUs(t *testing.T, d *deckhand, r *rand.Rand) *cpus {
	s := &cpus{t: t, d: d, r: r, m: randomMachine(r), on: options[r.IntN(len(options))], hint: &affinity{}}
	var none struct{}
	d.ask(map[string]any{"Machine": s.m}, &none)
	topo := s.m.topology()
	reserved := 1 + r.IntN(min(3, len(s.m.CPUs)))
	all := topo.CPUDetails.CPUs()
	var explicit cpuset.CPUSet
	if r.IntN(2) == 0 {
		explicit = cpuset.New(all.List()[:reserved]...)
	}
	var err error
	s.policy, err = cpumanager.NewStaticPolicy(logr.Discard(), topo, reserved, explicit, s.hint, s.on)
	if refused := d.ask(map[string]any{"Options": s.on}, &none); (refused != "") != (err != nil) {
		t.Fatalf("deckhand about the options %v on %+v: %q, the kubelet: %v", s.on, s.m, refused, err)
	}
	if err != nil {
		return nil
	}
	s.state = cpustate.NewMemoryState(logr.Discard())
	if err := s.policy.Start(logr.Discard(), s.state); err != nil {
		t.Fatal(err)
	}
	s.reserve = all.Difference(s.policy.GetAllocatableCPUs(s.state))
	if explicit.IsEmpty() {
		var got struct{ Set []int }
		d.ask(map[string]any{"Reserve": reserved}, &got)
		// With other options there are equally good choices.
		if ours := cpuset.New(got.Set...); !ours.Equals(s.reserve) && s.on["distribute-cpus-across-cores"] == "" && s.on["prefer-align-cpus-by-uncorecache"] == "" {
			t.Fatalf("%d reserved CPUs with the options %v on %+v: %v, want %v", reserved, s.on, s.m, ours, s.reserve)
		}
	}
	return s
}

// remove ends a pod.
func (s *cpus) remove() {
	if len(s.pods) == 0 {
		return
	}
	i := s.r.IntN(len(s.pods))
	for _, c := range containersOf(s.pods[i]) {
		if err := s.policy.RemoveContainer(logr.Discard(), s.state, string(s.pods[i].UID), c.Name); err != nil {
			s.t.Fatal(err)
		}
	}
	s.pods = slices.Delete(s.pods, i, i+1)
}

func containersOf(p *v1.Pod) []v1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// randomPod returns a Guaranteed pod with containers of up to most CPUs, some of which are init containers or sidecars.
func randomPod(r *rand.Rand, id, most int) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Name = types.UID(fmt.Sprintf("uid-%d", id)), fmt.Sprintf("pod-%d", id)
	always := v1.ContainerRestartPolicyAlways
	for i := range 1 + r.IntN(3) {
		count := 1 + r.IntN(most)
		c := v1.Container{Name: fmt.Sprintf("c-%d", i)}
		list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(count), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Gi")}
		c.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		switch r.IntN(6) {
		case 0:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 1:
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// admit takes CPUs for the containers of a new pod.
func (s *cpus) admit(id int) {
	p := randomPod(s.r, id, 1+len(s.m.CPUs)/3)
	s.pods = append(s.pods, p)
	reusable := cpuset.New()
	for i, c := range containersOf(p) {
		count := int(c.Resources.Requests.Cpu().Value())
		free := s.state.GetDefaultCPUSet().Difference(s.reserve)
		near := s.compareHints(p, &c, free, reusable, count)
		_, err := s.take(p, &c)
		var got struct {
			OK  bool
			Set []int
		}
		s.d.ask(map[string]any{"ChooseCPUs": map[string]any{"Free": free.List(), "Reusable": reusable.List(), "Count": count, "Near": near}}, &got)
		where := fmt.Sprintf("%d CPUs of %v near %b, reusable %v, options %v on %+v", count, free, near, reusable, s.on, s.m)
		if got.OK != (err == nil) && !(got.OK && !reusable.IsEmpty() && s.whole()) { // the kubelet doesn't count reusable cores
			s.t.Fatalf("%s: deckhand %v, the kubelet: %v", where, got, err)
		}
		if err != nil {
			return // the containers so far keep their CPUs until the pod is removed
		}
		theirs, _ := s.state.GetCPUSet(string(p.UID), c.Name)
		s.compareQuality(where, cpuset.New(got.Set...), theirs, free, reusable, near, count)
		switch {
		case i < len(p.Spec.InitContainers) && c.RestartPolicy == nil:
			reusable = reusable.Union(theirs)
		default:
			reusable = reusable.Difference(theirs)
		}
	}
}

func (s *cpus) take(p *v1.Pod, c *v1.Container) (cpuset.CPUSet, error) {
	err := s.policy.Allocate(logr.Discard(), s.state, p, c)
	set, _ := s.state.GetCPUSet(string(p.UID), c.Name)
	return set, err
}

func (s *cpus) whole() bool { return s.on["full-pcpus-only"] != "" }

// hint is deckhand's form of a hint.
type hint struct {
	Mask      int
	Preferred bool
}

func maskOf(m bitmask.BitMask) (mask int) {
	for _, bit := range m.GetBits() {
		mask |= 1 << bit
	}
	return mask
}

func hintsOf(list []topologymanager.TopologyHint) map[int]bool {
	out := map[int]bool{}
	for _, h := range list {
		out[maskOf(h.NUMANodeAffinity)] = h.Preferred
	}
	return out
}

// compareHints compares the hints, and returns the nodes that are to be near.
func (s *cpus) compareHints(p *v1.Pod, c *v1.Container, free, reusable cpuset.CPUSet, count int) int {
	list := s.policy.GetTopologyHints(logr.Discard(), s.state, p, c)[string(v1.ResourceCPU)]
	theirs, ours := hintsOf(list), map[int]bool{}
	var got struct{ Hints []hint }
	s.d.ask(map[string]any{"HintCPUs": map[string]any{"Free": free.List(), "Reusable": reusable.List(), "Count": count}}, &got)
	for _, h := range got.Hints {
		ours[h.Mask] = h.Preferred
	}
	for mask, preferred := range theirs {
		// The kubelet counts halves of cores that can't be taken.
		if is, ok := ours[mask]; is != preferred && ok || !ok && !s.whole() {
			s.t.Fatalf("hints for %d CPUs of %v, reusable %v, options %v on %+v: %v, want %v", count, free, reusable, s.on, s.m, ours, theirs)
		}
	}
	if len(ours) > len(theirs) && reusable.IsEmpty() {
		s.t.Fatalf("hints for %d CPUs of %v, options %v on %+v: %v, want %v", count, free, s.on, s.m, ours, theirs)
	}
	s.hint.hint = topologymanager.TopologyHint{}
	switch s.r.IntN(3) {
	case 0: // the best hint
		if best, ok := topologymanager.NewBestEffortPolicy(s.numa(), topologymanager.PolicyOptions{}).Merge(logr.Discard(), []map[string][]topologymanager.TopologyHint{{"cpu": list}}); ok {
			s.hint.hint = best
		}
	case 1: // what other resources want
		mask, _ := bitmask.NewBitMask(s.r.Perm(len(s.m.Nodes))[:1+s.r.IntN(len(s.m.Nodes))]...)
		s.hint.hint = topologymanager.TopologyHint{NUMANodeAffinity: mask}
	}
	if s.hint.hint.NUMANodeAffinity == nil {
		return 0
	}
	return maskOf(s.hint.hint.NUMANodeAffinity)
}

func (s *cpus) numa() *topologymanager.NUMAInfo {
	info := &topologymanager.NUMAInfo{}
	for _, n := range s.m.Nodes {
		info.Nodes = append(info.Nodes, n.ID)
	}
	return info
}

// compareQuality: deckhand's CPUs aren't worse than the kubelet's.
func (s *cpus) compareQuality(where string, ours, theirs, free, reusable cpuset.CPUSet, near, count int) {
	free = free.Union(reusable)
	if ours.Size() != count || !ours.IsSubsetOf(free) {
		s.t.Fatalf("%s: %v", where, ours)
	}
	aligned := s.near(free, near)
	if want := theirs.Intersection(aligned).Size(); ours.Intersection(aligned).Size() < want && !s.whole() {
		s.t.Fatalf("%s: %v, the kubelet has more near: %v", where, ours, theirs)
	}
	if used := min(count, reusable.Intersection(aligned).Size()); !s.whole() && ours.Intersection(reusable).Size() < used {
		s.t.Fatalf("%s: %v", where, ours)
	}
	if !reusable.IsEmpty() || s.whole() && !s.wholeCores(theirs) {
		return // the kubelet gives parts of cores near, where it has no whole ones
	}
	for _, part := range []cpuset.CPUSet{aligned, free.Difference(ours.Intersection(aligned))} {
		a, b := s.quality(ours.Intersection(part), part), s.quality(theirs.Intersection(part), part)
		if aligned.Size() < count && !part.Equals(aligned) || part.Equals(aligned) {
			if slices.Compare(a, b) > 0 {
				s.t.Fatalf("%s:\n%v is %v, the kubelet's %v is %v", where, ours, a, theirs, b)
			}
		}
	}
}

// near returns the free CPUs of the nodes, or of their sockets.
func (s *cpus) near(free cpuset.CPUSet, nodes int) cpuset.CPUSet {
	if nodes == 0 {
		return free
	}
	sockets := map[int]bool{}
	for _, c := range s.m.CPUs {
		sockets[c.Socket] = sockets[c.Socket] || nodes>>c.Node&1 == 1
	}
	var ids []int
	for _, c := range s.m.CPUs {
		if nodes>>c.Node&1 == 1 || s.on["align-by-socket"] != "" && sockets[c.Socket] {
			ids = append(ids, c.ID)
		}
	}
	return free.Intersection(cpuset.New(ids...))
}

func (s *cpus) wholeCores(set cpuset.CPUSet) bool {
	return !slices.ContainsFunc(s.m.CPUs, func(c cpu) bool {
		return slices.ContainsFunc(s.m.CPUs, func(d cpu) bool { return c.Core == d.Core && set.Contains(c.ID) != set.Contains(d.ID) })
	})
}

// even reports whether CPUs of these nodes are an equal part of each, as far as they can be divided.
func (s *cpus) even(nodes map[int]int, count int) bool {
	unit := 1
	for _, c := range s.m.CPUs {
		if s.whole() && c.Core == s.m.CPUs[0].Core && c != s.m.CPUs[0] {
			unit++
		}
	}
	for n := range maps.Values(nodes) {
		if n < count/unit/len(nodes)*unit {
			return false
		}
	}
	return true
}

// quality measures a choice of the free CPUs: less is better.
func (s *cpus) quality(set, free cpuset.CPUSet) []int {
	nodes, sockets, caches, cores, left := map[int]int{}, map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]int{}
	halves := map[int]bool{}
	for _, c := range s.m.CPUs {
		halves[c.Core] = halves[c.Core] || !free.Contains(c.ID)
	}
	for _, c := range s.m.CPUs {
		switch {
		case set.Contains(c.ID):
			nodes[c.Node]++
			sockets[c.Socket], caches[c.Cache], cores[c.Core] = true, true, true
		case free.Contains(c.ID) && !(s.whole() && halves[c.Core]): // the kubelet counts CPUs that can't be taken
			left[c.Node]++
		}
	}
	broken := 0
	for core := range cores {
		wholly, partly := true, false
		for _, c := range s.m.CPUs {
			if c.Core == core {
				wholly = wholly && free.Contains(c.ID)
				partly = partly || !set.Contains(c.ID)
			}
		}
		if wholly && partly {
			broken++
		}
	}
	switch {
	case s.on["distribute-cpus-across-cores"] != "":
		return []int{len(nodes), len(sockets), -len(cores)}
	case s.on["distribute-cpus-across-numa"] != "" && s.even(nodes, set.Size()):
		unequal := 0
		for n := range maps.Values(left) {
			unequal += n * n
		}
		return []int{0, len(nodes), unequal}
	case s.on["distribute-cpus-across-numa"] != "": // packed
		return []int{1, len(nodes), len(sockets), broken}
	case s.on["prefer-align-cpus-by-uncorecache"] != "":
		return []int{len(nodes), len(sockets), len(caches), broken}
	}
	return []int{len(nodes), len(sockets), broken}
}
