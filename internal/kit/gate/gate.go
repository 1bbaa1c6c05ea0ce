// Package gate limits how many operations run at once, and lets the more
// important ones through first.
package gate

import (
	"container/heap"
	"context"
	"sync"
)

// Gate admits at most a fixed number of holders at a time. Waiters with a higher
// priority go first; equals go in the order they came. It is safe for
// concurrent use.
type Gate struct {
	mu      sync.Mutex
	free    int
	arrived uint64
	waiting queue
}

// New makes a gate for n holders at a time; less than 1 counts as 1.
func New(n int) *Gate {
	return &Gate{free: max(n, 1)}
}

// Acquire waits for a place. The returned release gives it back; calling it more
// than once does no harm. The error is the context's, and then no place is held.
// A context that has already ended never gets a place.
func (g *Gate) Acquire(ctx context.Context, priority int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return sync.OnceFunc(g.release), nil
	}
	w := &waiter{priority: priority, arrival: g.arrived, admitted: make(chan struct{})}
	g.arrived++
	heap.Push(&g.waiting, w)
	g.mu.Unlock()

	select {
	case <-w.admitted:
		return sync.OnceFunc(g.release), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	queued := w.index >= 0
	if queued {
		heap.Remove(&g.waiting, w.index)
	}
	g.mu.Unlock()
	if !queued {
		// Admitted while giving up: the place goes to the next in the queue.
		g.release()
	}
	return nil, ctx.Err()
}

// release gives the place to the first waiter, so that it can't be taken by
// somebody who comes later.
func (g *Gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.free++
		return
	}
	close(heap.Pop(&g.waiting).(*waiter).admitted)
}
