package memory_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
	"github.com/deckhand-node/deckhand/internal/resources/assign/memory"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

const pages2Mi = "hugepages-2Mi"

// machine is a machine of NUMA nodes with so many bytes each.
func machine(sizes ...int64) *topology.Machine {
	m := &topology.Machine{}
	for id, size := range sizes {
		m.Nodes = append(m.Nodes, topology.Node{ID: id, Memory: size})
	}
	return m
}

func block(size uint64, nodes ...int) state.Block {
	return state.Block{NUMAAffinity: nodes, Type: v1.ResourceMemory, Size: size}
}

// entries are the blocks of pods with one container each.
func entries(blocks ...state.Block) state.ContainerMemoryAssignments {
	of := state.ContainerMemoryAssignments{}
	for i, b := range blocks {
		of[string(rune('a'+i))] = map[string][]state.Block{"c": {b}}
	}
	return of
}

func ask(size uint64, reusable ...state.Block) memory.Ask {
	return memory.Ask{Amounts: memory.Amounts{v1.ResourceMemory: size}, Reusable: reusable}
}

// TestHints: what can be taken, preferably of as few nodes as ever could do.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks []state.Block
		ask    memory.Ask
		want   map[align.Mask]bool
	}{
		{"an empty machine", nil, ask(10), map[align.Mask]bool{1: true, 2: true, 3: false, 4: true, 5: false, 6: false, 7: false}},
		{"a node that is used alone", []state.Block{block(4, 0)}, ask(5), map[align.Mask]bool{1: true, 2: true, 4: true, 6: false}},
		{"a node without enough", []state.Block{block(6, 0)}, ask(5), map[align.Mask]bool{2: true, 4: true, 6: false}},
		{"a group", []state.Block{block(12, 0, 1)}, ask(5), map[align.Mask]bool{3: false, 4: true}},
		{"more than a node", nil, ask(11), map[align.Mask]bool{3: true, 5: true, 6: true, 7: false}},
		{"more than a node, as one is used alone", []state.Block{block(1, 1)}, ask(11), map[align.Mask]bool{5: true}},
		{"too much", nil, ask(31), map[align.Mask]bool{}},
		{"again on the same node", []state.Block{block(8, 0), block(9, 1), block(9, 2)}, ask(9, block(8, 0)), map[align.Mask]bool{1: true}},
		{"not again on other nodes", []state.Block{block(8, 0), block(9, 1), block(9, 2)}, ask(9, block(8, 0, 1)), map[align.Mask]bool{}},
		{"nothing", nil, memory.Ask{}, map[align.Mask]bool{}},
		{"a kind that the machine hasn't", nil, memory.Ask{Amounts: memory.Amounts{pages2Mi: 1}}, map[align.Mask]bool{}},
	} {
		u, misfits := memory.Compute(machine(10, 10, 10), nil, entries(c.blocks...))
		got := map[align.Mask]bool{}
		for _, h := range u.Hints(c.ask) {
			got[h.Mask] = h.Preferred
		}
		if !maps.Equal(got, c.want) || len(misfits) > 0 {
			t.Errorf("%s: %v, want %v (%v)", c.name, got, c.want, misfits)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks []state.Block
		ask    memory.Ask
		near   align.Mask
		want   []int
	}{
		{"anywhere", nil, ask(5), 0, []int{0}},
		{"near", nil, ask(5), 2, []int{1}},
		{"near several", nil, ask(5), 6, []int{1, 2}},
		{"all nodes are anywhere", nil, ask(5), 7, []int{0}},
		{"near isn't enough", nil, ask(15), 2, []int{0, 1}},
		{"near is in a group", []state.Block{block(12, 1, 2)}, ask(5), 2, []int{1, 2}},
		{"near is full", []state.Block{block(9, 1)}, ask(5), 2, []int{0}},
		{"too much", []state.Block{block(9, 0), block(9, 1), block(9, 2)}, ask(2), 0, nil},
	} {
		u, _ := memory.Compute(machine(10, 10, 10), nil, entries(c.blocks...))
		var want []state.Block
		if c.want != nil {
			want = []state.Block{block(c.ask.Amounts[v1.ResourceMemory], c.want...)}
		}
		got, ok := u.Choose(c.ask, c.near)
		if diff := cmp.Diff(want, got); ok != (c.want != nil) || diff != "" {
			t.Errorf("%s: %v (-want +got): %s", c.name, ok, diff)
		}
	}
	u, _ := memory.Compute(machine(10), nil, nil)
	if got, ok := u.Choose(memory.Ask{}, 0); len(got) > 0 || !ok {
		t.Errorf("nothing: %v, %v", got, ok)
	}
}

// TestKinds: a container's memory and huge pages are of the same nodes, and huge pages aren't counted twice.
func TestKinds(t *testing.T) {
	const mi = 1 << 20
	m := machine(100*mi, 100*mi)
	m.Nodes[0].HugePages = []capacity.HugePages{{Size: 2 * mi, Count: 20}, {Size: 1 << 30}}
	m.Nodes[1].HugePages = []capacity.HugePages{{Size: 2 * mi, Count: 30}}
	reserved := map[int]memory.Amounts{0: {v1.ResourceMemory: 15 * mi, pages2Mi: 2 * mi}}
	u, _ := memory.Compute(m, reserved, nil)
	table := func(total, reserved, allocatable uint64) *state.MemoryTable {
		return &state.MemoryTable{TotalMemSize: total * mi, SystemReserved: reserved * mi, Allocatable: allocatable * mi, Free: allocatable * mi}
	}
	want := state.NUMANodeMap{
		0: {MemoryMap: map[v1.ResourceName]*state.MemoryTable{v1.ResourceMemory: table(100, 15, 45), pages2Mi: table(40, 2, 38), "hugepages-1Gi": table(0, 0, 0)}, Cells: []int{0}},
		1: {MemoryMap: map[v1.ResourceName]*state.MemoryTable{v1.ResourceMemory: table(100, 0, 40), pages2Mi: table(60, 0, 60)}, Cells: []int{1}},
	}
	if diff := cmp.Diff(want, u.State()); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	a := memory.Ask{Amounts: memory.Amounts{v1.ResourceMemory: 42 * mi, pages2Mi: 10 * mi}}
	got, _ := u.Choose(a, 2)
	if diff := cmp.Diff([]state.Block{{NUMAAffinity: []int{0, 1}, Type: pages2Mi, Size: 10 * mi}, {NUMAAffinity: []int{0, 1}, Type: v1.ResourceMemory, Size: 42 * mi}}, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
}

// TestCompute: blocks stay, whatever the machine has today; what doesn't fit is listed, and nothing overflows.
func TestCompute(t *testing.T) {
	gap := machine(10, 10)
	gap.Nodes[1].ID = 8
	small := state.Block{NUMAAffinity: []int{0}, Type: pages2Mi, Size: 1}
	for _, c := range []struct {
		name   string
		m      *topology.Machine
		blocks []state.Block
		want   []memory.Reason
		free   []uint64
	}{
		{"fits", machine(10, 10), []state.Block{block(4, 0), block(6, 0)}, nil, []uint64{0, 10}},
		{"a group is filled node by node", machine(10, 10), []state.Block{block(13, 0, 1)}, nil, []uint64{0, 7}},
		{"drift", machine(9, 10), []state.Block{block(4, 0), block(6, 0)}, []memory.Reason{memory.TooLarge}, []uint64{0, 10}},
		{"no node", machine(10), []state.Block{block(4, 1)}, []memory.Reason{memory.Gone}, []uint64{10}},
		{"no second node", machine(10), []state.Block{block(4, 0, 1)}, []memory.Reason{memory.Gone}, []uint64{6}},
		{"no such node", machine(10), []state.Block{block(4, -1), block(4, 77)}, []memory.Reason{memory.Gone, memory.Gone}, []uint64{10}},
		{"nodes with gaps", gap, []state.Block{block(4, 8)}, nil, []uint64{10, 6}},
		{"no huge pages", machine(10), []state.Block{small}, []memory.Reason{memory.Gone}, []uint64{10}},
		{"alone and together", machine(10, 10), []state.Block{block(4, 0), block(4, 0, 1)}, []memory.Reason{memory.Overlap}, []uint64{2, 10}},
		{"overflow", machine(10, 10), []state.Block{block(1<<64-1, 0, 1), block(1<<64-1, 0, 1)}, []memory.Reason{memory.TooLarge, memory.TooLarge}, []uint64{0, 0}},
		{"less than nothing", machine(-5), nil, nil, []uint64{0}},
	} {
		of := entries(c.blocks...)
		u, misfits := memory.Compute(c.m, nil, of)
		var reasons []memory.Reason
		for _, m := range misfits {
			reasons = append(reasons, m.Reason)
		}
		if !slices.Equal(reasons, c.want) {
			t.Errorf("%s: %+v, want %v", c.name, misfits, c.want)
		}
		for i, n := range c.m.Nodes {
			if table := u.State()[n.ID].MemoryMap[v1.ResourceMemory]; table.Free != c.free[i] {
				t.Errorf("%s: node %d has %+v, want %d free", c.name, n.ID, table, c.free[i])
			}
		}
		if diff := cmp.Diff(entries(c.blocks...), of); diff != "" {
			t.Errorf("%s: the blocks changed (-want +got): %s", c.name, diff)
		}
	}
	m := machine(10)
	m.Nodes[0].HugePages = []capacity.HugePages{{Size: 4, Count: 5}}
	u, _ := memory.Compute(m, map[int]memory.Amounts{0: {v1.ResourceMemory: 99}}, nil)
	if table := u.State()[0].MemoryMap[v1.ResourceMemory]; table.Allocatable != 0 {
		t.Errorf("more is reserved than there is: %+v", table)
	}
}

// TestDrift: a machine whose sizes change from boot to boot has the same blocks, and room for others.
func TestDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := state.ContainerMemoryAssignments{}
		for i := range 20 {
			size := func(node string) int64 { return rapid.Int64Range(920, 1080).Draw(t, node) }
			u, _ := memory.Compute(machine(size("node 0"), size("node 1")), nil, of)
			if got := u.State(); got[0].NumberOfAssignments+got[1].NumberOfAssignments < len(of) {
				t.Fatalf("%d pods: %+v", len(of), got)
			}
			if blocks, ok := u.Choose(ask(100), 0); ok {
				of[string(rune('a'+i))] = map[string][]state.Block{"c": blocks}
			} else if len(of) < 18 {
				t.Fatalf("only %d pods", len(of))
			}
		}
	})
}

// TestGroup: once all pods of a group are gone, its nodes can be used alone (kubernetes/kubernetes#113130).
func TestGroup(t *testing.T) {
	of := entries(block(12, 0, 1), block(3, 0, 1))
	alone := func() bool {
		u, _ := memory.Compute(machine(10, 10), nil, of)
		return slices.ContainsFunc(u.Hints(ask(1)), func(h align.Hint) bool { return h.Mask == 1 })
	}
	if delete(of, "a"); alone() {
		t.Error("a node of a group is used alone")
	}
	if delete(of, "b"); !alone() {
		t.Error("a node of no group can't be used")
	}
}

// TestReuse: the blocks of a pod add up to what it has.
func TestReuse(t *testing.T) {
	page := state.Block{NUMAAffinity: []int{0}, Type: pages2Mi, Size: 4}
	before := [][]state.Block{{block(6, 0), page}, {block(3, 1, 0)}, {block(2, 0)}}
	got := memory.Reuse([]state.Block{block(7, 0)}, before)
	if diff := cmp.Diff([][]state.Block{{block(0, 0), page}, {block(3, 1, 0)}, {block(1, 0)}}, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	if before[0][0].Size != 6 {
		t.Error("the old blocks changed")
	}
	if got := memory.Reuse([]state.Block{block(1, 0, 1)}, before); got[1][0].Size != 2 {
		t.Errorf("the order of nodes counts: %v", got)
	}
}

func TestReserved(t *testing.T) {
	list := []v1beta1.MemoryReservation{
		{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ki"), pages2Mi: resource.MustParse("2Mi")}},
		{NumaNode: 1, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Ki")}},
		{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1")}},
	}
	got, err := memory.Reserved(machine(10, 10), list)
	if diff := cmp.Diff(map[int]memory.Amounts{0: {v1.ResourceMemory: 1025, pages2Mi: 2 << 20}, 1: {v1.ResourceMemory: 2048}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got): %s", err, diff)
	}
	if got, err := memory.Reserved(machine(10), list); err == nil || !strings.Contains(err.Error(), "reservedMemory[1]: this machine has no NUMA node 1") {
		t.Errorf("%v, %v", got, err)
	}
}

func BenchmarkChoose(b *testing.B) {
	for name, count := range map[string]int{"8 nodes": 8, "16 nodes": 16} {
		m := machine(make([]int64, count)...)
		for i := range m.Nodes {
			m.Nodes[i].Memory = 1 << 36
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				u, _ := memory.Compute(m, nil, entries(block(1<<30, 0), block(1<<37, 2, 3)))
				if _, ok := u.Choose(ask(1<<30), 1); !ok {
					b.Fatal("doesn't fit")
				}
			}
		})
	}
}
