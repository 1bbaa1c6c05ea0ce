package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// errClosed is Next's error after Shutdown.
var errClosed = errors.New("event queue is shut down")

// fanout sends each published value to every subscriber, in order. It never blocks a publisher: the queue of each
// subscriber is bounded, and values that don't fit are dropped and counted. All its methods may be called
// concurrently.
type fanout[T any] struct {
	size int
	keep time.Duration

	mu      sync.Mutex
	subs    map[*subscription[T]]struct{}
	held    []heldValue[T]
	dropped int
	closed  bool
}

type heldValue[T any] struct {
	value T
	until time.Time
}

// newFanout returns a fanout whose subscribers may each fall size values behind. Values that are published without
// subscribers are kept for the duration keep, at most size of them, and delivered to the next subscriber.
func newFanout[T any](size int, keep time.Duration) *fanout[T] {
	return &fanout[T]{size: size, keep: keep, subs: make(map[*subscription[T]]struct{})}
}

// Publish sends v to every subscriber, or keeps it for the next one.
func (q *fanout[T]) Publish(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if len(q.subs) == 0 {
		q.retain(v)
		return
	}
	for s := range q.subs {
		q.push(s, v)
	}
}

func (q *fanout[T]) retain(v T) {
	now := time.Now()
	fresh := 0
	for fresh < len(q.held) && q.held[fresh].until.Before(now) {
		fresh++
	}
	q.dropped += fresh
	q.held = append(q.held[fresh:], heldValue[T]{v, now.Add(q.keep)})
	if len(q.held) > q.size {
		q.held = q.held[1:]
		q.dropped++
	}
}

func (q *fanout[T]) push(s *subscription[T], v T) {
	if len(s.waiting) >= q.size {
		q.dropped++
		return
	}
	s.waiting = append(s.waiting, v)
	s.ready.Wake()
}

// Subscribe starts a subscription with the values kept so far. The caller has to Close it.
func (q *fanout[T]) Subscribe() *subscription[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &subscription[T]{q: q, ready: wake.NewSlot()}
	now := time.Now()
	for _, h := range q.held {
		if h.until.Before(now) {
			q.dropped++
			continue
		}
		q.push(s, h.value)
	}
	q.held = nil
	q.subs[s] = struct{}{}
	return s
}

// Forget discards the values kept for the next subscriber, without counting them.
func (q *fanout[T]) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = nil
}

// Dropped returns how many values subscribers missed.
func (q *fanout[T]) Dropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Shutdown ends every subscription after its queued values have been read, and drops further values.
func (q *fanout[T]) Shutdown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for s := range q.subs {
		s.ready.Wake()
	}
}

// subscription is one reader's queue. Next and Close must not be called concurrently.
type subscription[T any] struct {
	q       *fanout[T]
	waiting []T
	ready   wake.Slot
}

// Next returns the queued values in order, and blocks until there is at least one. It returns ctx's error when ctx
// ends, errClosed after Shutdown.
func (s *subscription[T]) Next(ctx context.Context) ([]T, error) {
	for {
		s.q.mu.Lock()
		values, closed := s.waiting, s.q.closed
		s.waiting = nil
		s.q.mu.Unlock()
		if len(values) > 0 {
			return values, nil
		}
		if closed {
			return nil, errClosed
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ready:
		}
	}
}

// Close ends the subscription. It may be called twice.
func (s *subscription[T]) Close() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	delete(s.q.subs, s)
}
