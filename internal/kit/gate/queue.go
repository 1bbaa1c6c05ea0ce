package gate

// waiter is one waiting call of Acquire.
type waiter struct {
	priority int
	arrival  uint64
	// index is the waiter's index in the heap, -1 once it has left.
	index    int
	admitted chan struct{}
}

// queue is a heap.Interface with the next waiter to admit at the top.
type queue []*waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].priority != q[j].priority {
		return q[i].priority > q[j].priority
	}
	return q[i].arrival < q[j].arrival
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

func (q *queue) Pop() any {
	old := *q
	last := len(old) - 1
	w := old[last]
	old[last] = nil
	*q = old[:last]
	w.index = -1
	return w
}
