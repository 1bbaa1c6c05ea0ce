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

// patience is how long the server waits for the peer of a connection before it may close this connection in favour of
// a new one. It is short, because new connections are accepted one by one, and a probe may have to wait behind
// thousands of peers that reconnect whenever they are cut. It isn't shorter, because a probe on a busy host needs a
// few milliseconds.
const patience = 10 * time.Millisecond

// lookedAt is how long a connection is spared after a read that seems to complete a request, until the handler starts:
// it isn't closed in favour of a new connection. The time is bounded because a peer can send bytes that only look like
// the end of a request.
const lookedAt = 10 * patience

// sendBuffer is the size of a connection's send buffer in the kernel, in bytes. Without it, the buffer grows to
// megabytes per connection when the peer doesn't read.
const sendBuffer = 64 << 10

// streamBuffer is the size of a stream's send buffer, in bytes. With a smaller buffer, a stream often pauses until the
// peer acknowledges data.
const streamBuffer = 512 << 10

// acceptWithData sets TCP_DEFER_ACCEPT: the kernel returns a connection from accept only after data has arrived, or
// after readHeaderTimeout, so that silent peers take no slot. If the option can't be set, silent peers are cut when no
// slot is free.
func acceptWithData(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, int(readHeaderTimeout/time.Second))
	})
}

// listener keeps at most maxConns connections open at once, so that peers that hold connections open can't keep others
// from being served. When all slots are taken, a new connection replaces a connection that is idle, has no complete
// request, or has a peer that reads the answer slowly. The listener picks the connection that made the server wait
// longest per byte of the answer. It spares connections that only wait for this process. If there are no others, the
// new connection waits.
type listener struct {
	net.Listener
	// encrypted is set with TLS: then Read gets TLS records, in which the end of a request can't be recognized.
	encrypted bool
	closed    chan struct{}
	// freed receives a value when a slot may be free.
	freed chan struct{}

	mu   sync.Mutex
	open map[*conn]struct{}
	// closeBy is the deadline for all connections, set when the listener is closed or about to be closed.
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
		_ = tcp.SetWriteBuffer(sendBuffer) // an error leaves the default size
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

// closing sets closeBy. Streams call it when the stop begins, before the listener is closed.
func (l *listener) closing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closeBy.IsZero() {
		return
	}
	l.closeBy = time.Now().Add(shutdownTimeout / 2)
	for c := range l.open {
		if c.writeBy.After(l.closeBy) { // it may be writing already
			_ = c.Conn.SetWriteDeadline(l.closeBy) // fails only if it is closed
		}
	}
}

// add registers c if a slot is free or can be freed.
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
			// If only a part of a request was read, the connection is spared as long as there is another candidate:
			// this process may be the slow one.
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
	c.since = now // the time until a slot was free doesn't count against this peer
	l.open[c] = struct{}{}
	return true
}

// conn is an accepted connection. Its fields are guarded by its listener's mutex.
type conn struct {
	net.Conn
	listener *listener
	// since is when the current phase began: waiting for a request, running handlers, or writing.
	since time.Time
	// working is the number of running handlers, and blocked is how many of them wait for the peer to read. HTTP/2 runs
	// many handlers at once. When no handler runs, blocked is 1 while the rest of an answer is written.
	working, blocked int
	http2            bool
	// received is set once a part of the awaited request was read. whole is set if the bytes of the last read ended
	// like a complete request.
	received, whole bool
	// waited is how long the writes of this request's answer have waited for the peer; sent is how many bytes they
	// wrote.
	waited time.Duration
	sent   int
	// streams is the number of streams that use the connection (see Stream); gone is set once it is closed.
	streams int
	gone    bool
	// writeBy is the write deadline; zero if there is none.
	writeBy time.Time
}

// held returns how long the connection has waited for its peer: during this request or, between requests, for the
// next one.
func (c *conn) held(now time.Time) time.Duration {
	if c.working > c.blocked {
		return c.waited
	}
	return c.waited + now.Sub(c.since)
}

// arrived reports whether a request has arrived that this process hasn't handled yet: then this process is slow, not
// the peer.
func (c *conn) arrived() (there bool) {
	if c.whole && time.Since(c.since) < lookedAt { // no handler runs yet
		return true
	}
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok || c.received || c.working > 0 {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false // the connection is closed
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		there = err == nil && n > 0
	})
	return there
}

// asking reports whether a request was read, at least in part, and no handler runs yet.
func (c *conn) asking() bool { return c.received && c.working == 0 }

// perKiB divides held by the size in KiB of the answer that was written. The result is highest if nothing was written.
func (c *conn) perKiB(held time.Duration) time.Duration {
	return held / time.Duration(1+c.sent>>10)
}

// cut resets the connection (TCP RST); data that the peer hasn't read is dropped.
func (c *conn) cut() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error means an orderly close instead of a reset
	}
	c.Conn.Close()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.listener.mu.Lock()
		c.received, c.whole = true, !c.listener.encrypted && bytes.HasSuffix(b[:n], []byte("\r\n\r\n"))
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

// block counts a handler as waiting for the peer while the function write runs.
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

// SetWriteDeadline implements net.Conn. Once the listener is closing, all its connections share one deadline:
// net/http closes them one by one, and crypto/tls would wait up to 5 seconds for each peer that doesn't read the
// close_notify alert.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock() // unlocked only after the deadline is set: closing sets another one
	if by := c.listener.closeBy; !by.IsZero() && t.After(by) {
		t = by
	}
	c.writeBy = t
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

// stream adds a stream to the connection, or removes one. A connection with streams is never closed for a new one and
// doesn't count towards maxConns.
func (c *conn) stream(now bool) {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		size := sendBuffer
		if now {
			size = streamBuffer
		}
		_ = tcp.SetWriteBuffer(size) // an error only makes the stream slower
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

// now changes the connection's state and starts the next phase.
func (c *conn) now(change func()) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	change()
	c.since = time.Now()
}

// state handles a change of the connection's state (http.Server.ConnState).
func (c *conn) state(s http.ConnState) {
	if s == http.StateIdle || s == http.StateActive { // waited and sent are per request
		c.now(func() { c.waited, c.sent = 0, 0 })
	}
	if s == http.StateIdle {
		c.now(func() { c.received, c.whole = false, false })
		c.listener.free()
	}
}

type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, under(c))
}

// under returns the listener's connection, without TLS.
func under(c net.Conn) *conn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*conn)
}

// atWork counts the running handlers of each connection (conn.working). It doesn't wait for request bodies, because no
// handler needs one.
func atWork(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // can't fail on a *conn
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

// maxSharing is the limit of concurrent requests of an HTTP/2 connection.
const maxSharing = 32

// headerSize is the approximate size of a request before its body, in bytes.
func headerSize(r *http.Request) int {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// forget drops a request's header and URL once it is answered: HTTP/2 peers may leave many answers unread.
func forget(r *http.Request) { r.Header, r.URL, r.RequestURI = http.Header{}, &url.URL{}, "" }

// sharingWriter writes the answer to one of several requests on an HTTP/2 connection. It counts a handler as blocked
// while HTTP/2 flow control makes it wait, because conn.Write can't see that.
type sharingWriter struct {
	http.ResponseWriter
	conn *conn
}

// Unwrap supports http.ResponseController.
func (s *sharingWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements http.ResponseWriter.
func (s *sharingWriter) Write(b []byte) (int, error) {
	return s.conn.block(func() (int, error) { return s.ResponseWriter.Write(b) })
}

// FlushError supports http.ResponseController.
func (s *sharingWriter) FlushError() error {
	_, err := s.conn.block(func() (int, error) { return 0, http.NewResponseController(s.ResponseWriter).Flush() })
	return err
}
