package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// stall is how long a connection may do nothing for its request before it has to make room for another one.
const stall = 50 * time.Millisecond

// listener hands out at most maxConns connections at once. Whoever may connect can hold connections open, and must
// not keep others from being answered by that: where there is no room for a new connection, one is closed
// that is idle, whose request hasn't arrived, or whose peer doesn't read the answer. What is being worked on
// is left alone: only then a new connection waits.
type listener struct {
	net.Listener
	closed chan struct{}
	// freed is told that there may be room.
	freed chan struct{}

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, closed: make(chan struct{}), freed: make(chan struct{}, 1), open: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, since: time.Now()}
	for !l.add(c) {
		select {
		case <-l.freed:
		case <-time.After(stall):
		case <-l.closed:
			accepted.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// Close implements net.Listener. It is called once, by the server.
func (l *listener) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

// add takes in c, if there is or can be made room for it.
func (l *listener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxConns {
		var worst *conn
		now := time.Now()
		for o := range l.open {
			if o.dispensable(now) && (worst == nil || o.since.Before(worst.since)) {
				worst = o
			}
		}
		if worst == nil {
			return false
		}
		delete(l.open, worst)
		worst.cut()
	}
	l.open[c] = struct{}{}
	return true
}

// conn is an accepted connection. What it knows of itself is guarded by its listener's mutex.
type conn struct {
	net.Conn
	listener *listener
	// since says when it began to do what it does: to wait for a request, to work on one, or to write.
	since time.Time
	// idle says that an answer was given and no other request has begun, working that a handler runs,
	// writing that its peer has to read before it goes on.
	idle, working, writing bool
}

// dispensable reports whether the connection holds up others for nothing.
func (c *conn) dispensable(now time.Time) bool {
	return c.idle || (c.writing || !c.working) && now.Sub(c.since) >= stall
}

// cut closes the connection at once: what its peer didn't read is dropped.
func (c *conn) cut() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // or it is closed in order
	}
	c.Conn.Close()
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.now(func() { c.writing = true })
	defer c.now(func() { c.writing = false })
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	c.listener.free()
	return c.Conn.Close()
}

func (l *listener) free() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// now has the connection do something else from now on.
func (c *conn) now(change func()) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	change()
	c.since = time.Now()
}

// state takes in what the HTTP server says of the connection.
func (c *conn) state(s http.ConnState) {
	c.now(func() { c.idle = s == http.StateIdle })
	if s == http.StateIdle {
		c.listener.free()
	}
}

type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// atWork serves requests with h, and says so to their connections. No request has anything in its body that is wanted here:
// none is waited for.
func atWork(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // it can't fail on a connection of ours
		}
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.now(func() { c.working = true })
			defer c.now(func() { c.working = false })
		}
		h.ServeHTTP(w, r)
	})
}
