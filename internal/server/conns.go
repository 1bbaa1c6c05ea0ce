package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a peer may have had its connection wait, while it is served, before that has to make room for
// another one. It is short, because those that wait are let in one after the other: of peers that come again as soon as
// they are cut, there may be thousands before a probe. A probe on a busy host needs a few milliseconds, though.
const patience = 10 * time.Millisecond

// lookedAt is how long this process may take at most to look at a request that has come as a whole. A peer can make it
// look as if one had.
const lookedAt = 10 * patience

// sendBuffer bounds what the kernel holds of answers that nobody reads, which it otherwise lets grow to megabytes each.
const sendBuffer = 64 << 10

// streamBuffer is that of streams: what is sent through less stops again and again until the peer says that it has
// come.
const streamBuffer = 512 << 10

// acceptWithData has the kernel hand out a connection only when something has come on it, or after readHeaderTimeout:
// peers that say nothing take nobody's place, however often they come. Where it can't, they are cut instead.
func acceptWithData(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, int(readHeaderTimeout/time.Second))
	})
}

// listener hands out at most maxConns connections at once. Whoever may connect can hold connections open, and must
// not keep others from being answered by that: where there is no room for a new connection, one is closed
// that is idle, whose request hasn't arrived, or whose peer is slow to read the answer: the one that has got the least
// out of the time it had others wait. What is being worked on is left alone: only then a new connection waits.
type listener struct {
	net.Listener
	// encrypted says that what is read here is none of HTTP: peers choose how it looks.
	encrypted bool
	closed    chan struct{}
	// freed is told that there may be room.
	freed chan struct{}

	mu   sync.Mutex
	open map[*conn]struct{}
	// closeBy is when connections have to be closed, once the listener is or is about to be.
	closeBy time.Time
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, closed: make(chan struct{}), freed: make(chan struct{}, 1),
		open: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it, it is served all the same
	}
	c := &conn{Conn: accepted, listener: l}
	for !l.add(c) {
		select {
		case <-l.freed:
		case <-time.After(patience):
		case <-l.closed:
			accepted.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// Close implements net.Listener. It is called once, by the server.
func (l *listener) Close() error {
	l.closing()
	close(l.closed)
	return l.Listener.Close()
}

// closing says that the listener is about to be closed: streams end even before it is.
func (l *listener) closing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closeBy.IsZero() {
		l.closeBy = time.Now().Add(shutdownTimeout / 2)
	}
}

// add takes in c, if there is or can be made room for it.
func (l *listener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.open) >= maxConns {
		var worst *conn
		var most time.Duration
		for o := range l.open {
			held := o.held(now)
			if held < patience || o.arrived() {
				continue
			}
			// A request that is being read is left alone as long as others can go: it may be this process that is slow.
			if worst == nil || o.asking() == worst.asking() && o.perKiB(held) > most || worst.asking() && !o.asking() {
				worst, most = o, o.perKiB(held)
			}
		}
		if worst == nil {
			return false
		}
		delete(l.open, worst)
		worst.cut()
	}
	c.since = now // the time until there was room for it isn't its peer's
	l.open[c] = struct{}{}
	return true
}

// conn is an accepted connection. What it knows of itself is guarded by its listener's mutex.
type conn struct {
	net.Conn
	listener *listener
	// since says when it began to do what it does: to wait for a request, to work on one, or to write.
	since time.Time
	// working is how many handlers run, blocked how many of them have written what its peer has to read before they go
	// on: or, where none runs, whether what one has written still has to be. HTTP/2 has many at once.
	working, blocked int
	http2            bool
	// heard says that something of the request that it waits for was read, whole that what was read last ends as one
	// does.
	heard, whole bool
	// waited is how long its peer had writing wait in this request, and sent how many bytes it took meanwhile.
	waited time.Duration
	sent   int
	// streams is how many streams it serves (see Stream), gone says that it was closed.
	streams int
	gone    bool
}

// held is how long the connection has been waiting for its peer in this request, or for one.
func (c *conn) held(now time.Time) time.Duration {
	if c.working > c.blocked {
		return c.waited
	}
	return c.waited + now.Sub(c.since)
}

// arrived reports whether a request has come that nobody has had the time to look at: its peer isn't slow, this process
// is.
func (c *conn) arrived() (there bool) {
	if c.whole && time.Since(c.since) < lookedAt { // no handler runs yet
		return true
	}
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok || c.heard || c.working > 0 {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		there = err == nil && n > 0
	})
	return there
}

// asking reports whether a part of a request was read, or all of it, and no handler runs yet.
func (c *conn) asking() bool { return c.heard && c.working == 0 }

// perKiB is what each KiB of the answer has cost of this time: most by far where there is none.
func (c *conn) perKiB(held time.Duration) time.Duration {
	return held / time.Duration(1+c.sent>>10)
}

// cut closes the connection at once: what its peer didn't read is dropped.
func (c *conn) cut() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // or it is closed in order
	}
	c.Conn.Close()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.listener.mu.Lock()
		c.heard, c.whole = true, !c.listener.encrypted && bytes.HasSuffix(b[:n], []byte("\r\n\r\n"))
		c.listener.mu.Unlock()
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.listener.mu.Lock()
	ofNoHandler := c.streams > 0 || c.http2
	c.listener.mu.Unlock()
	if ofNoHandler {
		return c.Conn.Write(b)
	}
	return c.block(func() (int, error) { return c.Conn.Write(b) })
}

// block has a handler wait for the peer, as long as write takes.
func (c *conn) block(write func() (int, error)) (n int, err error) {
	c.now(func() { c.blocked++ })
	defer func() {
		c.now(func() {
			if c.blocked--; c.blocked == 0 {
				c.waited += time.Since(c.since)
			}
			c.sent += n
		})
	}()
	return write()
}

// SetWriteDeadline implements net.Conn. Once the listener is closed, all its connections have one deadline: net/http
// closes them one after the other, and TLS gives each peer that doesn't read 5 seconds to hear of it.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.listener.mu.Lock()
	if by := c.listener.closeBy; !by.IsZero() && t.After(by) {
		t = by
	}
	c.listener.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.gone = true
	c.listener.mu.Unlock()
	c.listener.free()
	return c.Conn.Close()
}

// stream says that the connection serves one more stream now, or one less: where there is any, it makes room for
// nobody, and takes none.
func (c *conn) stream(now bool) {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		size := sendBuffer
		if now {
			size = streamBuffer
		}
		_ = tcp.SetWriteBuffer(size) // without it, it is slower
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if now {
		c.streams++
		delete(c.listener.open, c)
		c.listener.free()
	} else if c.streams--; c.streams == 0 && !c.gone {
		c.since = time.Now()
		c.listener.open[c] = struct{}{}
	}
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
	if s == http.StateIdle || s == http.StateActive { // each request counts for itself
		c.now(func() { c.waited, c.sent = 0, 0 })
	}
	if s == http.StateIdle {
		c.now(func() { c.heard, c.whole = false, false })
		c.listener.free()
	}
}

type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, under(c))
}

// under is the connection that its listener handed out, which TLS may run over.
func under(c net.Conn) *conn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*conn)
}

// atWork serves requests with h, and says so to their connections. No request has anything in its body that is wanted
// here: none is waited for.
func atWork(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // it can't fail on a connection of ours
		}
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.now(func() { c.working, c.whole, c.http2 = c.working+1, false, r.ProtoMajor == 2 })
			defer c.now(func() { c.working-- })
			if r.ProtoMajor == 2 {
				w = &sharingWriter{w, c}
			}
		}
		if r.ProtoMajor == 2 {
			defer forget(r)
			if headerSize(r) > maxHeaderBytes {
				http.Error(w, "more than this takes HTTP/1.1", http.StatusRequestHeaderFieldsTooLarge)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// maxSharing is how many requests one connection of HTTP/2 may have under way.
const maxSharing = 32

// headerSize is about how many bytes a request has before its body.
func headerSize(r *http.Request) int {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// forget drops what was asked for once it is answered: a peer of HTTP/2 may let the answers of many requests wait.
func forget(r *http.Request) { r.Header, r.URL, r.RequestURI = http.Header{}, &url.URL{}, "" }

// sharingWriter writes the answer to one of several requests on a connection. It waits until the peer wants more of
// that, which nobody sees on the connection.
type sharingWriter struct {
	http.ResponseWriter
	conn *conn
}

// Unwrap is for http.ResponseController.
func (s *sharingWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements http.ResponseWriter.
func (s *sharingWriter) Write(b []byte) (int, error) {
	return s.conn.block(func() (int, error) { return s.ResponseWriter.Write(b) })
}

// FlushError is for http.ResponseController.
func (s *sharingWriter) FlushError() error {
	_, err := s.conn.block(func() (int, error) { return 0, http.NewResponseController(s.ResponseWriter).Flush() })
	return err
}
