package kubelet

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

const (
	mergeCases     = 1000
	memoryMachines = 40
	memoryPods     = 12
	pages2Mi       = v1.ResourceName("hugepages-2Mi")
	mi             = 1 << 20
)

// compareMerges: deckhand merges hints to the same NUMA nodes as the kubelet's policies, and accepts the same.
func compareMerges(t *testing.T, d *deckhand, r *rand.Rand) {
	var none struct{}
	for range mergeCases * *rounds {
		m := machine{}
		var nodes []cadvisor.Node
		count := 1 + r.IntN(5)
		for id := range count {
			n := node{ID: id}
			var distances []uint64
			for other := range count {
				distance := 10 // of a node to itself
				if other != id {
					distance += 1 + r.IntN(3)*11
				}
				n.Distances = append(n.Distances, distance)
				distances = append(distances, uint64(distance))
			}
			m.Nodes = append(m.Nodes, n)
			nodes = append(nodes, cadvisor.Node{Id: id, Distances: distances})
		}
		d.ask(map[string]any{"Machine": m}, &none)
		type wish struct {
			Hints    []hint
			Anywhere bool
		}
		var wishes []wish
		var providers []map[string][]topologymanager.TopologyHint
		for range r.IntN(5) {
			var w wish
			list := []topologymanager.TopologyHint{}
			for range r.IntN(7) {
				mask, _ := bitmask.NewBitMask(r.Perm(count)[:1+r.IntN(count)]...)
				h := topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: r.IntN(2) == 0}
				list = append(list, h)
				w.Hints = append(w.Hints, hint{maskOf(mask), h.Preferred})
			}
			switch w.Anywhere = len(list) == 0 && r.IntN(3) > 0; {
			case !w.Anywhere:
				providers = append(providers, map[string][]topologymanager.TopologyHint{"x": list})
			case r.IntN(2) == 0:
				providers = append(providers, map[string][]topologymanager.TopologyHint{"x": nil})
			default:
				providers = append(providers, nil)
			}
			wishes = append(wishes, w)
		}
		policy, closest := r.IntN(3), r.IntN(2) == 0
		opts := topologymanager.PolicyOptions{PreferClosestNUMA: closest}
		info, err := topologymanager.NewNUMAInfo(nodes, opts)
		if err != nil {
			t.Fatal(err)
		}
		kubelet := []topologymanager.Policy{topologymanager.NewBestEffortPolicy(info, opts), topologymanager.NewRestrictedPolicy(info, opts),
			topologymanager.NewSingleNumaNodePolicy(info, opts)}[policy]
		want, admit := kubelet.Merge(logr.Discard(), providers)
		mask := 1<<count - 1 // the kubelet says nothing where the node doesn't matter
		if want.NUMANodeAffinity != nil {
			mask = maskOf(want.NUMANodeAffinity)
		}
		var got struct {
			Hint hint
			OK   bool
		}
		d.ask(map[string]any{"Merge": map[string]any{"Policy": policy, "Closest": closest, "Wishes": wishes}}, &got)
		if got.OK != admit || admit && (got.Hint.Mask != mask || got.Hint.Preferred != want.Preferred) {
			t.Fatalf("%s, closest %v, %+v of %+v: %+v, want %b, %+v, %v", kubelet.Name(), closest, wishes, m.Nodes, got, mask, want, admit)
		}
	}
}

// memory is a machine with the kubelet's policy on it.
type memory struct {
	t        *testing.T
	d        *deckhand
	r        *rand.Rand
	m        machine
	info     *cadvisor.MachineInfo
	reserved map[int]map[v1.ResourceName]uint64
	hint     *affinity
	policy   memorymanager.Policy
	state    memorystate.State
	pods     []*v1.Pod
}

// compareMemory: on random machines with pods that come and go, the hints are the same, both admit the same containers to
// the same nodes, and a kubelet starts with deckhand's file.
func compareMemory(t *testing.T, d *deckhand, r *rand.Rand) {
	for range memoryMachines * *rounds {
		s := newMemory(t, d, r)
		for i := range memoryPods {
			s.admit(i)
			if r.IntN(2) == 0 {
				s.remove()
			}
		}
		s.startKubelet()
	}
}

func newMemory(t *testing.T, d *deckhand, r *rand.Rand) *memory {
	s := &memory{t: t, d: d, r: r, info: &cadvisor.MachineInfo{}, reserved: map[int]map[v1.ResourceName]uint64{}, hint: &affinity{}}
	for id := range 1 + r.IntN(4) {
		size, pages := 100+r.IntN(100), r.IntN(20)
		n := node{ID: id, Memory: size * mi}
		n.HugePages = append(n.HugePages, struct{ Size, Count int }{2 * mi, pages})
		s.m.Nodes = append(s.m.Nodes, n)
		s.info.Topology = append(s.info.Topology, cadvisor.Node{Id: id, Memory: uint64(size) * mi, HugePages: []cadvisor.HugePagesInfo{{PageSize: 2048, NumPages: uint64(pages)}}})
		s.reserved[id] = map[v1.ResourceName]uint64{v1.ResourceMemory: uint64(1+r.IntN(20)) * mi, pages2Mi: 2 * mi * uint64(r.IntN(1+pages/4))}
	}
	var none struct{}
	d.ask(map[string]any{"Machine": s.m}, &none)
	s.state = memorystate.NewMemoryState(logr.Discard())
	s.policy = s.start(s.state)
	return s
}

func (s *memory) start(state memorystate.State) memorymanager.Policy {
	s.t.Helper()
	policy, err := memorymanager.NewPolicyStatic(logr.Discard(), s.info, s.reserved, s.hint)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := policy.Start(logr.Discard(), state); err != nil {
		s.t.Fatal(err)
	}
	return policy
}

func (s *memory) remove() {
	if len(s.pods) == 0 {
		return
	}
	i := s.r.IntN(len(s.pods))
	for _, c := range containersOf(s.pods[i]) {
		s.policy.RemoveContainer(logr.Discard(), s.state, string(s.pods[i].UID), c.Name)
	}
	s.pods = slices.Delete(s.pods, i, i+1)
}

// randomMemoryPod returns a Guaranteed pod with memory and sometimes huge pages.
func randomMemoryPod(r *rand.Rand, id int) *v1.Pod {
	p := randomPod(r, id, 1)
	p.UID = types.UID(fmt.Sprintf("uid-%d", id))
	huge := r.IntN(3) == 0
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			most := 60
			if r.IntN(4) == 0 {
				most = 250
			}
			amounts := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: *resource.NewQuantity(int64(1+r.IntN(most))*mi, resource.BinarySI)}
			if huge {
				amounts[pages2Mi] = *resource.NewQuantity(int64(1+r.IntN(8))*2*mi, resource.BinarySI)
			}
			list[i].Resources = v1.ResourceRequirements{Requests: amounts, Limits: amounts}
		}
	}
	return p
}

func (s *memory) admit(id int) {
	p := randomMemoryPod(s.r, id)
	s.pods = append(s.pods, p)
	for i, c := range containersOf(p) {
		amounts := map[v1.ResourceName]uint64{}
		for kind, q := range c.Resources.Requests {
			if kind != v1.ResourceCPU {
				amounts[kind] = uint64(q.Value())
			}
		}
		// What init containers have as the kubelet writes it down, without what was used again.
		before := s.initial(p, i)
		initial := slices.Concat(before...)
		question := map[string]any{"Reserved": s.reserved, "Entries": s.state.GetMemoryAssignments(), "Amounts": amounts, "Reusable": initial}
		where := fmt.Sprintf("%v, reusable %v, of %+v, in use %v", amounts, initial, s.m.Nodes, s.state.GetMemoryAssignments())

		list := s.policy.GetTopologyHints(logr.Discard(), s.state, p, &c)[string(v1.ResourceMemory)]
		want, ours := hintsOf(list), map[int]bool{}
		var hints struct{ Hints []hint }
		s.d.ask(map[string]any{"HintMemory": question}, &hints)
		for _, h := range hints.Hints {
			ours[h.Mask] = h.Preferred
		}
		if !maps.Equal(ours, want) {
			s.t.Fatalf("%s: hints %v, want %v", where, ours, want)
		}

		all := 1<<len(s.m.Nodes) - 1
		near := s.r.IntN(all) // not all: the kubelet takes them literally then
		question["Near"] = near
		var got struct {
			OK     bool
			Blocks []memorystate.Block
			State  memorystate.NUMANodeMap
		}
		s.d.ask(map[string]any{"ChooseMemory": question}, &got)
		s.compareState(where, got.State)
		// Of equally good nodes the kubelet may choose others: it is told deckhand's.
		s.hint.hint = topologymanager.TopologyHint{}
		best := 0
		if got.OK {
			for _, id := range got.Blocks[0].NUMAAffinity {
				best |= 1 << id
			}
			s.compareBest(where, want, near, best)
			s.hint.hint.NUMANodeAffinity, _ = bitmask.NewBitMask(got.Blocks[0].NUMAAffinity...)
		}
		err := s.policy.Allocate(logr.Discard(), s.state, p, &c)
		if got.OK != (err == nil) {
			s.t.Fatalf("%s: deckhand %+v, the kubelet: %v", where, got, err)
		}
		if err != nil {
			return // the containers so far keep their blocks until the pod is removed
		}
		theirs := s.state.GetMemoryBlocks(string(p.UID), c.Name)
		if !equalBlocks(got.Blocks, theirs) {
			s.t.Fatalf("%s: %v, want %v", where, got.Blocks, theirs)
		}
		var left struct{ Reused [][]memorystate.Block }
		s.d.ask(map[string]any{"ReuseMemory": map[string]any{"Later": got.Blocks, "Of": before}}, &left)
		if after := s.initial(p, i); !slices.EqualFunc(left.Reused, after, equalBlocks) {
			s.t.Fatalf("%s: init containers have %v, want %v", where, left.Reused, after)
		}
	}
}

// initial returns the blocks of the init containers that end before the i-th container starts.
func (s *memory) initial(p *v1.Pod, i int) [][]memorystate.Block {
	of := [][]memorystate.Block{}
	for _, c := range p.Spec.InitContainers[:min(i, len(p.Spec.InitContainers))] {
		if c.RestartPolicy == nil {
			of = append(of, slices.Clone(s.state.GetMemoryBlocks(string(p.UID), c.Name)))
		}
	}
	return of
}

// equalBlocks compares in any order.
func equalBlocks(a, b []memorystate.Block) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x memorystate.Block) bool {
		return !slices.ContainsFunc(b, func(y memorystate.Block) bool { return reflect.DeepEqual(x, y) })
	})
}

// compareBest: the nodes are near, or the best that contain those that are, or the best of all.
func (s *memory) compareBest(where string, hints map[int]bool, near, best int) {
	rank := func(mask int) []int {
		rank := []int{0, 0, bits.OnesCount(uint(mask))}
		if mask&near != near {
			rank[0] = 1
		}
		if !hints[mask] {
			rank[1] = 1
		}
		return rank
	}
	for mask := range hints {
		if slices.Compare(rank(mask), rank(best)) < 0 {
			s.t.Fatalf("%s near %b: %b, and %b is better", where, near, best, mask)
		}
	}
}

// compareState: the figures are the kubelet's. How much of a block is on which node of a group isn't defined.
func (s *memory) compareState(where string, ours memorystate.NUMANodeMap) {
	theirs := s.state.GetMachineState()
	for id, n := range theirs {
		o := ours[id]
		slices.Sort(n.Cells)
		if len(ours) != len(theirs) || o.NumberOfAssignments != n.NumberOfAssignments || !slices.Equal(o.Cells, n.Cells) || len(o.MemoryMap) != len(n.MemoryMap) {
			s.t.Fatalf("%s: node %d is %+v, want %+v", where, id, o, n)
		}
		for kind, table := range n.MemoryMap {
			got, want := memorystate.MemoryTable{}, memorystate.MemoryTable{}
			for _, member := range n.Cells {
				for sum, of := range map[*memorystate.MemoryTable]*memorystate.MemoryTable{&got: ours[member].MemoryMap[kind], &want: theirs[member].MemoryMap[kind]} {
					sum.Free += of.Free
					sum.Reserved += of.Reserved
				}
			}
			own := o.MemoryMap[kind]
			if got != want || own.TotalMemSize != table.TotalMemSize || own.Allocatable != table.Allocatable || own.SystemReserved != table.SystemReserved {
				s.t.Fatalf("%s: %s of node %d is %+v, want %+v", where, kind, id, own, table)
			}
		}
	}
}

// startKubelet starts a kubelet's policy with the file that deckhand would have written.
func (s *memory) startKubelet() {
	entries := s.state.GetMemoryAssignments()
	var use struct{ State memorystate.NUMANodeMap }
	s.d.ask(map[string]any{"ChooseMemory": map[string]any{"Reserved": s.reserved, "Entries": entries}}, &use)
	var file struct{ Text string }
	s.d.ask(map[string]any{"EncodeMemory": map[string]any{"policyName": "Static", "machineState": use.State, "entries": entries}}, &file)
	const name = "memory_manager_state"
	dir := s.t.TempDir()
	write(s.t, filepath.Join(dir, name), file.Text)
	state, err := memorystate.NewCheckpointState(logr.Discard(), dir, name, "Static")
	if err != nil {
		s.t.Fatalf("%s: %v", file.Text, err)
	}
	s.start(state)
}
