package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

type stoppingKey struct{}

// Stream has h served as long as it takes: without the limits of time that other requests have, on a connection that
// isn't one of those that make room for others. The request's context ends when the server begins to stop; a connection
// that h has taken over (http.Hijacker) is closed then, and the server waits until h has returned. Whoever serves
// streams bounds their number.
func Stream(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		c, ours := ctx.Value(connKey{}).(*conn)
		if stopping, ok := ctx.Value(stoppingKey{}).(context.Context); ok {
			defer context.AfterFunc(stopping, func() {
				if ours {
					c.listener.closing()
				}
				end()
			})()
		}
		if ours {
			c.stream(true)
			defer c.stream(false)
		}
		limits := http.NewResponseController(w)
		_ = limits.SetWriteDeadline(time.Time{}) // it can't fail on a connection of ours
		if r.ContentLength == 0 {
			_ = limits.SetReadDeadline(time.Time{})
		}
		s := &streamWriter{ResponseWriter: w}
		defer context.AfterFunc(ctx, s.cut)()
		defer s.returned()
		h.ServeHTTP(s, r.WithContext(ctx))
	})
}

// streamWriter knows the connection that was taken over.
type streamWriter struct {
	http.ResponseWriter
	mu    sync.Mutex
	taken net.Conn
	// over says that the stream is to end, left that its handler has returned: the writer is no more then.
	over, left bool
}

func (s *streamWriter) returned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// Unwrap is for http.ResponseController.
func (s *streamWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Hijack implements http.Hijacker.
func (s *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken = c; s.over {
		cut(c)
	}
	return c, b, nil
}

// cut closes what was taken over, and has nothing written any more, at once: a peer that reads no more can't hold it
// up.
func (s *streamWriter) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	switch {
	case s.left:
	case s.taken != nil:
		cut(s.taken)
	default:
		// it can't fail on a connection of ours
		_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now())
	}
}

func cut(c net.Conn) {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if ours, ok := c.(*conn); ok {
		ours.cut()
		return
	}
	c.Close()
}
