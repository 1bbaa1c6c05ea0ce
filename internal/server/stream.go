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

// Stream serves h without time limits, on a connection that isn't closed to make room for others. The request's
// context ends when the server begins to stop. A connection that h has hijacked (http.Hijacker) is closed then, and
// the server waits until h has returned. The caller has to limit the number of streams.
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
		_ = limits.SetWriteDeadline(time.Time{}) // can't fail on a *conn
		if r.ContentLength == 0 {
			_ = limits.SetReadDeadline(time.Time{})
		}
		s := &streamWriter{ResponseWriter: w}
		defer context.AfterFunc(ctx, s.cut)()
		defer s.returned()
		h.ServeHTTP(s, r.WithContext(ctx))
	})
}

// streamWriter is the ResponseWriter of a stream. It remembers the connection if the handler hijacks it.
type streamWriter struct {
	http.ResponseWriter
	mu    sync.Mutex
	taken net.Conn
	// over is set when the stream has to end. left is set once its handler has returned: then the ResponseWriter is no
	// longer valid.
	over, left bool
}

func (s *streamWriter) returned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// Unwrap supports http.ResponseController.
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

// cut ends the stream at once, even if the peer no longer reads: it closes a hijacked connection, or makes writes
// fail.
func (s *streamWriter) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	switch {
	case s.left:
	case s.taken != nil:
		cut(s.taken)
	default:
		// can't fail on a *conn
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
