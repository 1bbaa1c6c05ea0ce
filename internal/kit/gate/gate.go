// Package gate limits how many operations run at once, and admits those of higher priority first.
package gate

import (
	"container/heap"
	"context"
	"sync"
)

// Gate admits at most a fixed number of holders at a time. Waiters with a higher priority go first; those with the
// same priority go in the order of their arrival. It is safe for concurrent use.
type Gate struct {
	mu sync.Mutex
	// free is negative while there are more holders than size.
	size, free int
	arrived    uint64
	waiting    queue
}

// New makes a gate for n holders at a time; less than 1 counts as 1.
func New(n int) *Gate {
	n = max(n, 1)
	return &Gate{size: n, free: n}
}

// Resize sets the number of holders at a time; less than 1 counts as 1. If there are more holders at that time, they
// keep their places.
func (g *Gate) Resize(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = max(n, 1)
	g.free += n - g.size
	g.size = n
	g.admit()
}

// Acquire waits for a place. The caller has to call release to give it back; further calls have no effect. The error
// is the context's, and then no place is held. A context that has already ended never gets a place.
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
		// The waiter was admitted when its context ended: the place goes to the next waiter.
		g.release()
	}
	return nil, ctx.Err()
}

// release gives the place to the first waiter, so that a later caller can't take it.
func (g *Gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	g.admit()
}

// admit gives free places to waiters. The caller holds g.mu.
func (g *Gate) admit() {
	for ; g.free > 0 && len(g.waiting) > 0; g.free-- {
		close(heap.Pop(&g.waiting).(*waiter).admitted)
	}
}
