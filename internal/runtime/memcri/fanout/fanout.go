// Package fanout hands each published value to every subscriber, in order. A
// publisher is never held up: each subscriber has a bounded queue of its own,
// and what doesn't fit is dropped and counted.
package fanout

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed is what Next returns after Shutdown.
var ErrClosed = errors.New("event queue is shut down")

// Queue is the meeting point of publishers and subscribers. All its methods
// may be called concurrently.
type Queue[T any] struct {
	size int
	keep time.Duration

	mu      sync.Mutex
	subs    map[*Subscription[T]]struct{}
	held    []heldValue[T]
	dropped int
	closed  bool
}

type heldValue[T any] struct {
	value T
	until time.Time
}

// New makes a Queue whose subscribers may each fall size values behind. Values
// published while nobody subscribes are kept for keep and given to the next
// subscriber; no more than size of them.
func New[T any](size int, keep time.Duration) *Queue[T] {
	return &Queue[T]{size: size, keep: keep, subs: make(map[*Subscription[T]]struct{})}
}

// Publish gives v to every subscriber, or keeps it for the next one.
func (q *Queue[T]) Publish(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if len(q.subs) == 0 {
		q.hold(v)
		return
	}
	for s := range q.subs {
		q.push(s, v)
	}
}

func (q *Queue[T]) hold(v T) {
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

func (q *Queue[T]) push(s *Subscription[T], v T) {
	if len(s.waiting) >= q.size {
		q.dropped++
		return
	}
	s.waiting = append(s.waiting, v)
	s.wake()
}

// Subscribe starts a subscription with the values kept so far. The caller has
// to Close it.
func (q *Queue[T]) Subscribe() *Subscription[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &Subscription[T]{q: q, ready: make(chan struct{}, 1)}
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

// Forget drops what is kept for a next subscriber, uncounted.
func (q *Queue[T]) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = nil
}

// Dropped returns how many values some subscriber missed.
func (q *Queue[T]) Dropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Shutdown ends every subscription once it has read what it was given, and
// lets further values fall to the floor.
func (q *Queue[T]) Shutdown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for s := range q.subs {
		s.wake()
	}
}

// Subscription is one reader's queue. Next and Close must not be called
// concurrently.
type Subscription[T any] struct {
	q       *Queue[T]
	waiting []T
	ready   chan struct{}
}

func (s *Subscription[T]) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Next returns the values that wait, in order, waiting for the first if there
// is none. It returns ctx's error when ctx ends, ErrClosed after Shutdown.
func (s *Subscription[T]) Next(ctx context.Context) ([]T, error) {
	for {
		s.q.mu.Lock()
		values, closed := s.waiting, s.q.closed
		s.waiting = nil
		s.q.mu.Unlock()
		if len(values) > 0 {
			return values, nil
		}
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ready:
		}
	}
}

// Close ends the subscription. Closing twice is fine.
func (s *Subscription[T]) Close() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	delete(s.q.subs, s)
}
