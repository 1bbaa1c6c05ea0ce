package pull

import (
	"context"
	"sync"
)

// shared lets those who want the same thing at the same time share one call. Its
// zero value is ready to use.
//
// The call belongs to its waiters together: it goes on while one of them is left
// and is cancelled when the last one gives up, who then waits until it has ended.
type shared[K comparable, T any] struct {
	mu    sync.Mutex
	calls map[K]*call[T]
}

type call[T any] struct {
	cancel  context.CancelFunc
	waiters int
	// done is closed when value and err are set.
	done  chan struct{}
	value T
	err   error
}

// do returns what f returns for this key, joining a call under way. When ctx ends
// first, its error is returned.
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
	// The call outlives the one who began it, if others wait for it.
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

// leave gives up waiting. Once a call is cancelled nobody can join it any more:
// who comes next begins a new one.
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
