package cri

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
)

// service is a connection that a link maintains.
type service interface {
	Close(ctx context.Context) error
}

// link maintains a connection to one service and replaces it when it is lost.
//
// gRPC would also reconnect by itself. But with the back-off that cri-client hard-codes, it waits up to 3 s between
// attempts, so that the runtime would seem unavailable for seconds after it is available again. So a broken
// connection is dropped, and the next call establishes a new one at once.
type link[S service] struct {
	dial func(context.Context) (S, error)
	// gate is a semaphore: its holder may dial.
	gate chan struct{}

	mu      sync.Mutex
	current *session[S]
	closed  bool
}

// session is one connection. It is closed when it is retired and has no users.
type session[S service] struct {
	service S
	users   int
	retired bool
}

func newLink[S service](dial func(context.Context) (S, error)) *link[S] {
	return &link[S]{dial: dial, gate: make(chan struct{}, 1)}
}

// acquire returns a live connection, which the caller has to release.
func (l *link[S]) acquire(ctx context.Context) (*session[S], error) {
	if s, err := l.acquireCurrent(); s != nil || err != nil {
		return s, err
	}
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// Another goroutine may have dialled in the meantime.
	if s, err := l.acquireCurrent(); s != nil || err != nil {
		return s, err
	}
	svc, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		closeQuietly(ctx, svc)
		return nil, errClosed
	}
	l.current = &session[S]{service: svc, users: 1}
	return l.current, nil
}

// acquireCurrent returns the current connection, and counts the caller as a user of it. It returns nil if there is
// no connection.
func (l *link[S]) acquireCurrent() (*session[S], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.current != nil {
		l.current.users++
	}
	return l.current, nil
}

func (l *link[S]) release(ctx context.Context, s *session[S], broken bool) {
	l.mu.Lock()
	s.users--
	if broken {
		l.retire(s)
	}
	done := s.retired && s.users == 0
	l.mu.Unlock()
	if done {
		closeQuietly(ctx, s.service)
	}
}

func (l *link[S]) retire(s *session[S]) {
	s.retired = true
	if l.current == s {
		l.current = nil
	}
}

// close closes the link: calls in progress may finish, new ones fail.
func (l *link[S]) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	s := l.current
	if s != nil {
		l.retire(s)
	}
	idle := s != nil && s.users == 0
	l.mu.Unlock()
	if idle {
		closeQuietly(ctx, s.service)
	}
}

// closeQuietly drops the error: closing a gRPC connection only fails if it is closed already.
func closeQuietly[S service](ctx context.Context, s S) {
	_ = s.Close(logr.NewContext(context.WithoutCancel(ctx), logr.Discard()))
}
