package align_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
)

// product merges by looking at each combination of hints.
func product(g align.Merger, wishes []align.Wish) (best align.Hint, ok bool) {
	all := align.All(len(g.Nodes))
	// A wish without hints is a hint of all nodes, which has no part in what is equal.
	type hint struct {
		align.Hint
		none bool
	}
	var lists [][]hint
	width := 1
	for _, w := range wishes {
		list, least := []hint{}, 0
		for _, h := range w.Hints {
			if g.Policy == align.SingleNode && (!h.Preferred || h.Mask.Width() != 1) {
				continue
			}
			list = append(list, hint{h, false})
			if n := h.Mask.Width(); least == 0 || n < least {
				least = n
			}
		}
		width = max(width, least)
		if len(list) == 0 {
			list = []hint{{align.Hint{Mask: all, Preferred: w.Anywhere}, true}}
		}
		lists = append(lists, list)
	}
	found := false
	var try func(at int, and align.Mask, equal *align.Mask, preferred bool)
	try = func(at int, and align.Mask, equal *align.Mask, preferred bool) {
		if at < len(lists) {
			for _, h := range lists[at] {
				e, p := equal, preferred && h.Preferred
				if !h.none {
					if e == nil {
						e = &h.Mask
					}
					p = p && *e == h.Mask
				}
				try(at+1, and&h.Mask, e, p)
			}
			return
		}
		c := align.Hint{Mask: and, Preferred: preferred}
		if and == 0 {
			return
		}
		if !found || better(g, c, best, width) {
			best, found = c, true
		}
	}
	try(0, all, nil, true)
	if !found {
		best = align.Hint{Mask: all}
	}
	return best, g.Policy == align.BestEffort || best.Preferred
}

func better(g align.Merger, a, b align.Hint, width int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	if a.Preferred {
		width = 1
	}
	off := func(m align.Mask) int { // how far from the width; too wide is worse than too narrow
		if n := m.Width(); n <= width {
			return width - n
		}
		return 100 + m.Width() - width
	}
	if x, y := off(a.Mask), off(b.Mask); x != y {
		return x < y
	}
	if g.Closest {
		x, y := apart(g.Nodes, a.Mask), apart(g.Nodes, b.Mask)
		if x != y {
			return x < y
		}
	}
	return a.Mask < b.Mask
}

func apart(nodes []topology.Node, m align.Mask) (sum int) {
	for i := range nodes {
		for j := range nodes {
			if m>>i&1 == 1 && m>>j&1 == 1 && nodes[i].Distances != nil {
				sum += nodes[i].Distances[j]
			}
		}
	}
	return sum
}

// TestMergeIsExhaustive: the result is that of all combinations.
func TestMergeIsExhaustive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := make([]topology.Node, rapid.IntRange(1, 4).Draw(t, "nodes"))
		for i := range nodes {
			if rapid.Bool().Draw(t, "distances") {
				nodes[i].Distances = rapid.SliceOfN(rapid.IntRange(10, 30), len(nodes), len(nodes)).Draw(t, "to")
			}
		}
		g := align.Merger{Policy: rapid.SampledFrom([]align.Policy{align.BestEffort, align.Restricted, align.SingleNode}).Draw(t, "policy"),
			Closest: rapid.Bool().Draw(t, "closest"), Nodes: nodes}
		mask := rapid.Custom(func(t *rapid.T) align.Hint {
			return align.Hint{Mask: align.Mask(rapid.IntRange(1, int(align.All(len(nodes)))).Draw(t, "mask")), Preferred: rapid.Bool().Draw(t, "preferred")}
		})
		wishes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) align.Wish {
			w := align.Wish{Hints: rapid.SliceOfN(mask, 0, 6).Draw(t, "hints")}
			w.Anywhere = len(w.Hints) == 0 && rapid.Bool().Draw(t, "anywhere")
			return w
		}), 0, 4).Draw(t, "wishes")
		got, ok := g.Merge(wishes)
		want, accepted := product(g, wishes)
		if got != want || ok != accepted {
			t.Fatalf("%+v, %v, want %+v, %v", got, ok, want, accepted)
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{8, 16} {
		all := align.All(n)
		var wishes []align.Wish
		for range 4 {
			var w align.Wish
			for m := align.Mask(1); m <= all; m++ {
				w.Hints = append(w.Hints, align.Hint{Mask: m})
			}
			wishes = append(wishes, w)
		}
		g := align.Merger{Nodes: make([]topology.Node, n)}
		b.Run(map[int]string{8: "8 nodes", 16: "16 nodes"}[n], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.Merge(wishes)
			}
		})
	}
}
