package pull

import (
	"context"
	"sync"
)

// shared deduplicates concurrent calls with the same key. The zero value is ready to use.
//
// A call continues while any of its waiters remains. It is cancelled when the last waiter's context ends; that waiter
// returns only after the call has ended.
type shared[K comparable, T any] struct {
	mu    sync.Mutex
	calls map[K]*call[T]
}

type call[T any] struct {
	cancel  context.CancelFunc
	waiters int
	// done is closed when value and err have been set.
	done  chan struct{}
	value T
	err   error
}

// do returns the result of f for this key, and joins a call in progress. If ctx ends first, it returns ctx's error.
func (s *shared[K, T]) do(ctx context.Context, key K, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c := s.join(ctx, key, f)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		s.leave(key, c)
		return none, ctx.Err()
	}
}

func (s *shared[K, T]) join(ctx context.Context, key K, f func(context.Context) (T, error)) *call[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[key]; ok {
		c.waiters++
		return c
	}
	// The call outlives its first waiter if there are others.
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call[T]{cancel: cancel, waiters: 1, done: make(chan struct{})}
	if s.calls == nil {
		s.calls = map[K]*call[T]{}
	}
	s.calls[key] = c
	go func() {
		defer cancel()
		c.value, c.err = f(callCtx)
		s.mu.Lock()
		s.forget(key, c)
		s.mu.Unlock()
		close(c.done)
	}()
	return c
}

// leave removes a waiter. A cancelled call can't be joined: the next caller starts a new one.
func (s *shared[K, T]) leave(key K, c *call[T]) {
	s.mu.Lock()
	c.waiters--
	last := c.waiters == 0
	if last {
		s.forget(key, c)
	}
	s.mu.Unlock()
	if last {
		c.cancel()
		<-c.done
	}
}

func (s *shared[K, T]) forget(key K, c *call[T]) {
	if s.calls[key] == c {
		delete(s.calls, key)
	}
}
