package logrotate

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
	// wake is a one-slot channel, filled while there may be something for another worker.
	wake chan struct{}
}

func newQueue() *queue {
	return &queue{busy: map[*container]struct{}{}, wake: make(chan struct{}, 1)}
}

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
	q.fill()
}

// later queues a container that a worker has, to be tidied up.
func (q *queue) later(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tidy = append(q.tidy, c)
	q.fill()
}

// done ends a worker's hold on a container.
func (q *queue) done(c *container) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, c)
}

// next waits for a container. Only ctx's end is an error.
func (q *queue) next(ctx context.Context) (c *container, tidy bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if c, tidy := q.pop(); c != nil {
			return c, tidy, nil
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
	}
}

func (q *queue) pop() (c *container, tidy bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.rotate
	if len(*from) == 0 {
		from, tidy = &q.tidy, true
	}
	if len(*from) == 0 {
		return nil, false
	}
	c, *from = (*from)[0], (*from)[1:]
	if len(q.rotate)+len(q.tidy) > 0 {
		q.fill()
	}
	return c, tidy
}

func (q *queue) fill() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
