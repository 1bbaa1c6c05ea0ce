package image

import (
	"context"
	"sync"
)

// shared lets those who want the same thing at the same time share one call. Its
// zero value is ready to use.
//
// The call belongs to its waiters together: it goes on while one of them is left
// and is cancelled when the last one gives up, who then waits until it has ended.
type shared struct {
	mu    sync.Mutex
	calls map[string]*call
}

type call struct {
	cancel  context.CancelFunc
	waiters int
	// done is closed when ref and err are set.
	done chan struct{}
	ref  string
	err  error
}

// do returns what f returns for this key, joining a call under way. When ctx ends
// first, its error is returned.
func (s *shared) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	c := s.join(ctx, key, f)
	select {
	case <-c.done:
		return c.ref, c.err
	case <-ctx.Done():
		s.leave(key, c)
		return "", ctx.Err()
	}
}

func (s *shared) join(ctx context.Context, key string, f func(context.Context) (string, error)) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[key]; ok {
		c.waiters++
		return c
	}
	// The call outlives the one who began it, if others wait for it.
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{cancel: cancel, waiters: 1, done: make(chan struct{})}
	if s.calls == nil {
		s.calls = map[string]*call{}
	}
	s.calls[key] = c
	go func() {
		defer cancel()
		c.ref, c.err = f(callCtx)
		s.mu.Lock()
		s.forget(key, c)
		s.mu.Unlock()
		close(c.done)
	}()
	return c
}

// leave gives up waiting. Once a call is cancelled nobody can join it any more:
// who comes next begins a new one.
func (s *shared) leave(key string, c *call) {
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

func (s *shared) forget(key string, c *call) {
	if s.calls[key] == c {
		delete(s.calls, key)
	}
}
