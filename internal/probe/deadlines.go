package probe

import "container/heap"

// deadlines is a heap of the waiting entries, the one that is due first at the top.
type deadlines struct{ entries byDue }

func (d *deadlines) add(e *entry)    { heap.Push(&d.entries, e) }
func (d *deadlines) remove(e *entry) { heap.Remove(&d.entries, e.index) }

// first returns the entry that is due first; nil if none waits.
func (d *deadlines) first() *entry {
	if len(d.entries) == 0 {
		return nil
	}
	return d.entries[0]
}

// byDue is the heap.Interface of deadlines.
type byDue []*entry

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due < h[j].due }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byDue) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *byDue) Pop() any {
	old := *h
	last := len(old) - 1
	e := old[last]
	old[last] = nil
	*h = old[:last]
	return e
}
