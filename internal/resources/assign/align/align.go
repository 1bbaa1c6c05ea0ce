// Package align chooses the NUMA nodes from which the resources of a container, or of a pod, are taken together
// (KEP-693). It is pure.
package align

import (
	"math/bits"
	"slices"

	"github.com/deckhand-node/deckhand/internal/host/topology"
)

// Mask is a set of NUMA nodes: bit i is the i-th of topology.Machine.Nodes.
type Mask uint32

// MaxNodes is how many NUMA nodes can be aligned: the time to Merge grows with 2^nodes.
const MaxNodes = 20

// All returns the mask of n nodes.
func All(n int) Mask { return 1<<n - 1 }

// Width is how many nodes are in the mask.
func (m Mask) Width() int { return bits.OnesCount32(uint32(m)) }

// Hint is a set of nodes that a resource can be taken from. It is preferred if the machine couldn't do with fewer nodes
// even if nothing was in use.
type Hint struct {
	Mask      Mask
	Preferred bool
}

// Wish is the possible origins of one resource.
type Wish struct {
	// Resource names it.
	Resource string
	// Hints are all sets of nodes that it can be taken from. None says that it can't be taken at all, unless Anywhere.
	Hints []Hint
	// Anywhere says that it doesn't matter where it is taken from.
	Anywhere bool
}

// Policy is a KubeletConfiguration.topologyManagerPolicy.
type Policy int

// The policies: BestEffort accepts any nodes, Restricted only preferred nodes, SingleNode only one node.
const (
	BestEffort Policy = iota
	Restricted
	SingleNode
)

// Merger merges wishes on a machine.
type Merger struct {
	Policy Policy
	// Closest prefers nodes that are close to each other to those with the lowest IDs (prefer-closest-numa-nodes).
	Closest bool
	Nodes   []topology.Node
}

// Merge returns the nodes from which all wishes are to be taken, as far as possible, and whether the policy accepts
// that. Of the nodes that all wishes have in common in some combination of their hints, the best are those that all
// wishes prefer; of others those whose number is closest to the number that the most demanding wish needs, and only if
// all are more, more than that; then the closest to each other, then those with the lowest IDs.
func (g Merger) Merge(wishes []Wish) (Hint, bool) {
	if g.Policy == SingleNode {
		wishes = singles(wishes)
	}
	best, ok := g.preferred(wishes)
	if ok {
		return Hint{Mask: best, Preferred: true}, true
	}
	return Hint{Mask: g.common(wishes)}, g.Policy == BestEffort
}

// singles leaves the preferred hints of one node.
func singles(wishes []Wish) []Wish {
	out := slices.Clone(wishes)
	for i := range out {
		out[i].Hints = nil
		for _, h := range wishes[i].Hints {
			if h.Preferred && h.Mask.Width() == 1 {
				out[i].Hints = append(out[i].Hints, h)
			}
		}
	}
	return out
}

// preferred returns the best mask that all wishes prefer; all nodes if it doesn't matter to any of them.
func (g Merger) preferred(wishes []Wish) (best Mask, ok bool) {
	all := All(len(g.Nodes))
	wanted, by := make([]uint8, all+1), uint8(0)
	for _, w := range wishes {
		if w.Anywhere {
			continue
		}
		for _, h := range w.Hints {
			if h.Preferred && h.Mask <= all && wanted[h.Mask] == by {
				wanted[h.Mask]++
			}
		}
		by++
	}
	if by == 0 {
		return all, true
	}
	for m := range wanted {
		if m := Mask(m); m != 0 && wanted[m] == by && (!ok || g.better(m, best, 1)) {
			best, ok = m, true
		}
	}
	return best, ok
}

// common returns the best mask that wishes have in common; all nodes if there is none.
func (g Merger) common(wishes []Wish) Mask {
	all := All(len(g.Nodes))
	// can says which masks the wishes so far can have in common.
	var can []uint64
	width := 1
	for _, w := range wishes {
		if len(w.Hints) == 0 {
			continue
		}
		masks, least := make([]uint64, all+1), len(g.Nodes)
		for _, h := range w.Hints {
			if h.Mask != 0 && h.Mask <= all {
				masks[h.Mask] = 1
				least = min(least, h.Mask.Width())
			}
		}
		width = max(width, least)
		if can == nil {
			can = masks
		} else {
			intersect(can, masks)
		}
	}
	best, ok := all, false
	for m := range can {
		if m := Mask(m); m != 0 && can[m] != 0 && (!ok || g.better(m, best, width)) {
			best, ok = m, true
		}
	}
	return best
}

// better reports whether a is better than b if width nodes are needed.
func (g Merger) better(a, b Mask, width int) bool {
	if x, y := a.Width(), b.Width(); x != y {
		switch {
		case x <= width && y <= width:
			return x > y
		case x > width && y > width:
			return x < y
		}
		return x <= width
	}
	if g.Closest {
		if x, y := g.distance(a), g.distance(b); x != y {
			return x < y
		}
	}
	return a < b
}

// distance is the sum of the distances between the nodes of a mask; nodes without figures count as 0.
func (g Merger) distance(m Mask) (sum int) {
	for i, from := range g.Nodes {
		for j := range from.Distances {
			if m&(1<<i) != 0 && m&(1<<j) != 0 {
				sum += from.Distances[j]
			}
		}
	}
	return sum
}

// intersect sets a[m] to 1 for each m that is the intersection of a mask of a and one of b, and to 0 for others. It
// counts the pairs of masks that both contain m, and takes off those whose intersection is larger (the AND-convolution
// by Möbius inversion). Both have 0 and 1 only, so that counts stay below 2^40.
func intersect(a, b []uint64) {
	sum(a, 1)
	sum(b, 1)
	for m := range a {
		a[m] *= b[m]
	}
	sum(a, ^uint64(0))
	for m := range a {
		a[m] = min(a[m], 1)
	}
}

// sum adds to each mask's count the counts of all masks that contain it, times factor once for each node more.
func sum(of []uint64, factor uint64) {
	for bit := 1; bit < len(of); bit <<= 1 {
		for low := 0; low < len(of); low += 2 * bit {
			without, with := of[low:low+bit], of[low+bit:low+2*bit]
			for i := range without {
				without[i] += factor * with[i]
			}
		}
	}
}
