// Package memory chooses the NUMA nodes that containers get memory and huge pages of their own from. It is pure:
// containers have blocks, which never change because a machine's sizes do, and everything else is computed from them.
package memory

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

// Amounts are bytes of memory and huge pages by their names.
type Amounts map[v1.ResourceName]uint64

// Reserved returns the memory that containers can't have, by the ID of the NUMA node. The list is that of a valid
// KubeletConfiguration. Reserved fails if this machine doesn't have one of the nodes.
func Reserved(m *topology.Machine, list []v1beta1.MemoryReservation) (map[int]Amounts, error) {
	of := map[int]Amounts{}
	for _, n := range m.Nodes {
		of[n.ID] = Amounts{}
	}
	for i, r := range list {
		amounts, ok := of[int(r.NumaNode)]
		if !ok {
			return nil, fmt.Errorf("reservedMemory[%d]: this machine has no NUMA node %d; it has %v",
				i, r.NumaNode, slices.Sorted(maps.Keys(of)))
		}
		for kind, size := range r.Limits {
			amounts[kind] += uint64(max(0, size.Value()))
		}
	}
	return of, nil
}

// Usage is how the memory of a machine's NUMA nodes is used.
type Usage struct {
	// nodes are in the order of topology.Machine.Nodes.
	nodes []node
}

type node struct {
	id    int
	kinds map[v1.ResourceName]*state.MemoryTable
	// blocks is how many blocks of containers touch the node, group are all nodes of these blocks. A node that is used
	// together with others can't be used alone, and the other way round.
	blocks int
	group  align.Mask
}

// Misfit is a block of a container that the machine doesn't have, or not in full.
type Misfit struct {
	// Pod is a UID.
	Pod, Container string
	Block          state.Block
	Reason         Reason
}

// Reason is why a block doesn't fit.
type Reason string

// The reasons.
const (
	// Gone: the machine has no such NUMA node, or not this kind of memory.
	Gone Reason = "gone"
	// TooLarge: the nodes have less than all their blocks together.
	TooLarge Reason = "too large"
	// Overlap: one of the nodes is used alone or with other nodes by another block.
	Overlap Reason = "overlap"
)

// Compute returns the use of a machine by the blocks of containers, and the blocks that don't fit. These are counted as
// far as the machine has them.
func Compute(m *topology.Machine, reserved map[int]Amounts, of state.ContainerMemoryAssignments) (Usage, []Misfit) {
	u := Usage{make([]node, len(m.Nodes))}
	for i, n := range m.Nodes {
		u.nodes[i] = newNode(n, reserved[n.ID])
	}
	var misfits []Misfit
	for _, pod := range slices.Sorted(maps.Keys(of)) {
		for _, container := range slices.Sorted(maps.Keys(of[pod])) {
			for _, b := range of[pod][container] {
				if reason := u.add(b); reason != "" {
					misfits = append(misfits, Misfit{pod, container, b, reason})
				}
			}
		}
	}
	return u, misfits
}

func newNode(n topology.Node, reserved Amounts) node {
	of := node{id: n.ID, kinds: map[v1.ResourceName]*state.MemoryTable{}}
	memory := uint64(max(0, n.Memory))
	rest := memory
	for _, pages := range n.HugePages {
		kind := HugePages(pages.Size)
		size := uint64(max(0, pages.Size)) * uint64(max(0, pages.Count))
		of.kinds[kind] = newTable(size, size, reserved[kind])
		rest -= min(rest, size)
	}
	of.kinds[v1.ResourceMemory] = newTable(memory, rest, reserved[v1.ResourceMemory])
	return of
}

// newTable returns the figures of a kind of memory of which usable bytes can be used.
func newTable(total, usable, reserved uint64) *state.MemoryTable {
	usable -= min(usable, reserved)
	return &state.MemoryTable{TotalMemSize: total, SystemReserved: reserved, Allocatable: usable, Free: usable}
}

// HugePages returns the name of huge pages of a size in bytes.
func HugePages(size int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// add counts a block: its nodes are filled one after the other, as the kubelet does.
func (u *Usage) add(b state.Block) (reason Reason) {
	mask, gone := u.mask(b.NUMAAffinity)
	if gone {
		reason = Gone
	}
	left := b.Size
	for i := range u.nodes {
		n := &u.nodes[i]
		if mask&(1<<i) == 0 {
			continue
		}
		if n.blocks > 0 && n.group != mask {
			reason = cmp.Or(reason, Overlap)
		}
		n.blocks++
		n.group |= mask
		table := n.kinds[b.Type]
		if table == nil {
			reason = cmp.Or(reason, Gone)
			continue
		}
		taken := min(left, table.Free)
		table.Free -= taken
		table.Reserved += taken
		left -= taken
	}
	if left > 0 {
		reason = cmp.Or(reason, TooLarge)
	}
	return reason
}

// mask returns the nodes with these IDs, and whether one is missing.
func (u *Usage) mask(ids []int) (mask align.Mask, gone bool) {
	for _, id := range ids {
		i, ok := slices.BinarySearchFunc(u.nodes, id, func(n node, id int) int { return cmp.Compare(n.id, id) })
		if ok {
			mask |= 1 << i
		}
		gone = gone || !ok
	}
	return mask, gone
}

func (u *Usage) ids(mask align.Mask) (ids []int) {
	for i, n := range u.nodes {
		if mask&(1<<i) != 0 {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// State returns the use in the form of the kubelet's file.
func (u *Usage) State() state.NUMANodeMap {
	of := state.NUMANodeMap{}
	for i, n := range u.nodes {
		s := &state.NUMANodeState{NumberOfAssignments: n.blocks, Cells: u.ids(n.group | 1<<i),
			MemoryMap: map[v1.ResourceName]*state.MemoryTable{}}
		for kind, table := range n.kinds {
			copied := *table
			s.MemoryMap[kind] = &copied
		}
		of[n.id] = s
	}
	return of
}

// Ask is a container's wish for memory of its own.
type Ask struct {
	Amounts Amounts
	// Reusable are blocks of init containers of the pod that end before this container starts. They can be used again
	// on exactly the same nodes.
	Reusable []state.Block
}

// Hints returns the sets of NUMA nodes of which all the memory can be taken; they are the hints of each kind. Preferred
// are those of as few nodes as would be enough if no container had memory.
func (u *Usage) Hints(a Ask) []align.Hint {
	if len(a.Amounts) == 0 || len(u.nodes) > align.MaxNodes {
		return nil
	}
	demands := u.demands(a)
	var hints []align.Hint
	width := len(u.nodes)
	for mask := align.Mask(1); mask <= align.All(len(u.nodes)); mask++ {
		could, can := true, u.together(mask)
		for _, d := range demands {
			allocatable, free := d.sum(mask)
			could = could && allocatable >= d.size
			can = can && could && free >= d.size
		}
		if could {
			width = min(width, mask.Width())
		}
		if can {
			hints = append(hints, align.Hint{Mask: mask})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Mask.Width() == width
	}
	return hints
}

// demand is how much a container wants of a kind of memory.
type demand struct {
	size uint64
	// tables are the figures of each node; nil for a node without this kind.
	tables   []*state.MemoryTable
	reusable map[align.Mask]uint64
}

func (u *Usage) demands(a Ask) (out []demand) {
	for kind, size := range a.Amounts {
		d := demand{size, make([]*state.MemoryTable, len(u.nodes)), map[align.Mask]uint64{}}
		for i, n := range u.nodes {
			d.tables[i] = n.kinds[kind]
		}
		for _, b := range a.Reusable {
			if mask, gone := u.mask(b.NUMAAffinity); b.Type == kind && !gone {
				d.reusable[mask] += b.Size
			}
		}
		out = append(out, d)
	}
	return out
}

// sum returns the size of some nodes' memory, and how much of it is free or can be used again.
func (d *demand) sum(mask align.Mask) (allocatable, free uint64) {
	free = d.reusable[mask]
	for rest := mask; rest != 0; rest &= rest - 1 {
		if table := d.tables[bits.TrailingZeros32(uint32(rest))]; table != nil {
			allocatable += table.Allocatable
			free += table.Free
		}
	}
	return allocatable, free
}

// together reports whether the nodes can be used together, or the one node alone.
func (u *Usage) together(mask align.Mask) bool {
	for rest := mask; rest != 0; rest &= rest - 1 {
		if n := &u.nodes[bits.TrailingZeros32(uint32(rest))]; n.blocks > 0 && n.group != mask {
			return false
		}
	}
	return true
}

// Choose returns a container's blocks by kind, all of the same nodes: of those of near, or of as few as possible that
// contain near, or else of any. It returns false if there is too little memory. near is 0 or all nodes if it doesn't
// matter.
func (u *Usage) Choose(a Ask, near align.Mask) ([]state.Block, bool) {
	if near == align.All(len(u.nodes)) {
		near = 0
	}
	var best align.Mask
	for _, h := range u.Hints(a) {
		if best == 0 || compare(h.Mask, best, near) < 0 {
			best = h.Mask
		}
	}
	if best == 0 {
		return nil, len(a.Amounts) == 0
	}
	blocks := make([]state.Block, 0, len(a.Amounts))
	for _, kind := range slices.Sorted(maps.Keys(a.Amounts)) {
		blocks = append(blocks, state.Block{NUMAAffinity: u.ids(best), Type: kind, Size: a.Amounts[kind]})
	}
	return blocks, true
}

// compare returns a negative number if a is better than b.
func compare(a, b, near align.Mask) int {
	if x, y := a&near == near, b&near == near; x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Width()-b.Width(), cmp.Compare(a, b))
}

// Reuse returns the blocks of a pod's init containers without the memory that a later container with these blocks uses
// again, so that the sum of all blocks is the memory of the pod.
func Reuse(later []state.Block, of [][]state.Block) [][]state.Block {
	out := make([][]state.Block, len(of))
	for i := range of {
		out[i] = slices.Clone(of[i])
	}
	for _, t := range later {
		left := t.Size
		for _, blocks := range out {
			for i := range blocks {
				if b := &blocks[i]; b.Type == t.Type && sameNodes(b.NUMAAffinity, t.NUMAAffinity) {
					used := min(left, b.Size)
					b.Size -= used
					left -= used
				}
			}
		}
	}
	return out
}

func sameNodes(a, b []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
