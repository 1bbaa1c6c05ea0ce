package rotate

import (
	"context"
	"sync"
)

// queue distributes containers to workers. A container is processed by at most one worker at a time. It is safe for
// concurrent use.
type queue struct {
	mu sync.Mutex
	// rotate and tidy have the containers that wait for a worker; rotate goes first.
	rotate, tidy []*container
	// busy has the containers that are queued or processed.
	busy map[*container]struct{}
	// workers is the current number of workers.
	workers int
}

func newQueue() *queue { return &queue{busy: map[*container]struct{}{}} }

// has reports whether the container is queued or processed.
func (q *queue) has(c *container) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.busy[c]
	return ok
}

// add queues a container for rotation.
func (q *queue) add(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[c] = struct{}{}
	q.rotate = append(q.rotate, c)
}

// later queues a container that its worker has rotated, for tidying.
func (q *queue) later(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tidy = append(q.tidy, c)
}

// done releases a container from its worker.
func (q *queue) done(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, c)
}

// hire reports whether there is work for an additional worker. If so, it counts the worker, which then has to call
// next until that returns nil.
func (q *queue) hire(limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.workers >= min(max(1, limit), len(q.busy)) {
		return false
	}
	q.workers++
	return true
}

// urgent returns a container that waits for rotation, or nil. It is for a worker that is busy tidying another
// container. It removes the containers that wait for tidying from the queue until the next scan, because their logs
// may grow meanwhile.
func (q *queue) urgent() *container {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.tidy {
		delete(q.busy, c)
	}
	q.tidy = nil
	if len(q.rotate) == 0 {
		return nil
	}
	c := q.rotate[0]
	q.rotate = q.rotate[1:]
	return c
}

// next returns a container to a worker, and whether to tidy it. nil ends the worker: the queue is empty, there are
// too many workers, or ctx has ended.
func (q *queue) next(ctx context.Context, limit int) (c *container, tidy bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.rotate
	if len(*from) == 0 {
		from, tidy = &q.tidy, true
	}
	if len(*from) == 0 || q.workers > max(1, limit) || ctx.Err() != nil {
		q.workers--
		return nil, false
	}
	c, *from = (*from)[0], (*from)[1:]
	return c, tidy
}
