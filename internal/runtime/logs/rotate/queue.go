package rotate

import (
	"context"
	"sync"
)

// queue hands containers to workers: each to one worker at a time. It is safe for
// concurrent use.
type queue struct {
	mu sync.Mutex
	// rotate and tidy are waiting for a worker; rotate goes first.
	rotate, tidy []*container
	// busy are those that wait or are being worked at.
	busy map[*container]struct{}
	// workers is how many there are.
	workers int
}

func newQueue() *queue { return &queue{busy: map[*container]struct{}{}} }

// has reports whether the container waits or is being worked at.
func (q *queue) has(c *container) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.busy[c]
	return ok
}

// add queues a container to have its log rotated.
func (q *queue) add(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[c] = struct{}{}
	q.rotate = append(q.rotate, c)
}

// later queues a container that a worker has, to be tidied up.
func (q *queue) later(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tidy = append(q.tidy, c)
}

// done ends a worker's hold on a container.
func (q *queue) done(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, c)
}

// hire reports whether there is work for one worker more, who then has to call next until
// that sends it away.
func (q *queue) hire(limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.workers >= min(max(1, limit), len(q.busy)) {
		return false
	}
	q.workers++
	return true
}

// urgent returns to a worker, beside the container that it has, one that waits to have its log rotated, or nil. Those
// that wait to be tidied up are given up until the next look, for their logs may grow meanwhile.
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

// next returns a container to a worker, or sends it away with nil: there is none left,
// there are too many workers, or ctx has ended.
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
