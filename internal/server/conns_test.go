package server

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// memListener hands out connections in the order in which they were dialled.
type memListener struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { close(l.closed); return nil }
func (l *memListener) Addr() net.Addr { return nil }

func (l *memListener) dial() net.Conn {
	client, accepted := net.Pipe()
	l.dialled <- accepted
	return client
}

// A connection that had to wait for room isn't taken for one whose peer is slow.
func TestWaitForRoomIsNotThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memListener{dialled: make(chan net.Conn, maxConns+2), closed: make(chan struct{})}
		l := newListener(m)
		var first *conn
		accept := func() *conn {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return nil
			}
			return c.(*conn)
		}
		for range maxConns {
			defer m.dial().Close()
			first = accept()
			first.now(func() { first.working = 1 })
		}
		time.AfterFunc(10*patience+patience/2, func() { first.Close() })
		defer m.dial().Close()
		waited := accept()
		time.AfterFunc(patience/2, func() { waited.now(func() { waited.working = 1 }) })
		time.AfterFunc(5*patience, func() { l.Close() })
		defer m.dial().Close()
		if _, err := l.Accept(); err == nil {
			t.Errorf("a connection was let in instead of one whose request hadn't had time to arrive")
		}
	})
}

// Of connections that nobody has read from yet, those whose request is there stay: their peers aren't slow.
func TestWhatHasArrivedIsNotCut(t *testing.T) {
	real, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(real)
	defer l.Close()
	var open []net.Conn
	for i := range maxConns + 1 {
		client, err := net.Dial("tcp", real.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if i == maxConns {
			time.Sleep(2 * patience) // none of them is new any more
		}
		if i != maxConns/2 {
			if _, err := io.WriteString(client, "GET"); err != nil {
				t.Fatal(err)
			}
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	for i, c := range open {
		if _, there := l.open[c.(*conn)]; there == (i == maxConns/2) {
			t.Errorf("connection %d: open %v; only the silent one is to be cut", i, there)
		}
	}
}

// Peers that say nothing aren't handed out before those that do.
func TestSilentPeersTakeNoPlace(t *testing.T) {
	opened, err := New(logr.Discard(), Listener{Name: "a", Addr: netip.MustParseAddrPort("127.0.0.1:0")}).listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened[0].Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", opened[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 10 {
		defer dial().Close()
	}
	asking := dial()
	defer asking.Close()
	if _, err := io.WriteString(asking, "GET"); err != nil {
		t.Fatal(err)
	}
	c, err := opened[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.RemoteAddr().String(), asking.LocalAddr().String(); got != want {
		t.Errorf("the first that is handed out is %s, want %s, which asks", got, want)
	}
}

// peer has one connection, until it is cut.
type peer func(net.Conn)

// Peers that come again as soon as they are cut, or read just so much that they are never seen to stand still,
// don't keep others from being answered. Time is virtual: it is spent with waiting only.
func TestHostilePeersKeepNobodyWaiting(t *testing.T) {
	const many = 150
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	after := func(request string, then peer) peer {
		return func(c net.Conn) {
			if _, err := io.WriteString(c, request); err == nil {
				then(c)
			}
		}
	}
	dripping := func(every time.Duration, size int) peer {
		return func(c net.Conn) {
			for b := make([]byte, size); ; time.Sleep(every) {
				if _, err := c.Read(b); err != nil {
					return
				}
			}
		}
	}
	// drop by drop is a request that never comes to its end.
	dropByDrop := func(c net.Conn) {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(c, "X-%d: x\r\n", i); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	const large = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
	kinds := map[string]peer{
		"silent":           silent,
		"half-open":        after("GET / HTTP/1.1\r\nHost:", silent),
		"half a header":    after("GET / HTTP/1.1\r\nHost: x\r\n", dropByDrop),
		"half a body":      after("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", dropByDrop),
		"idle":             after("GET / HTTP/1.1\r\nHost: x\r\n\r\n", silent),
		"reads nothing":    after(large, func(net.Conn) { time.Sleep(time.Minute) }),
		"reads slowly":     after(large, dripping(10*time.Millisecond, 2<<10)),
		"reads in drips":   after(large, dripping(time.Millisecond, 1<<10)),
		"leaves and comes": after(large, func(net.Conn) { time.Sleep(time.Millisecond) }),
	}
	run := func(name string, peers ...peer) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { besiege(t, many, peers) })
		})
	}
	var all []peer
	for name, p := range kinds {
		run(name, p)
		all = append(all, p)
	}
	run("all of them", all...)
}

// besiege has many peers of each kind at a server, and asks it like a probe does.
func besiege(t *testing.T, many int, kinds []peer) {
	l := &memListener{dialled: make(chan net.Conn, 1<<16), closed: make(chan struct{})}
	answer := bytes.Repeat([]byte("a"), 8<<20)
	s := New(logr.Discard())
	var conns sync.WaitGroup
	served := s.httpServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(answer) // fails when the connection is cut
			return
		}
		_, _ = io.WriteString(w, "ok")
	}), &conns)
	var running sync.WaitGroup
	running.Go(func() { _ = served.Serve(newListener(l)) })

	over := make(chan struct{})
	for _, behave := range kinds {
		for range many {
			running.Go(func() {
				for {
					c := l.dial()
					done := make(chan struct{})
					go func() {
						select {
						case <-over:
							c.Close()
						case <-done:
						}
					}()
					behave(c)
					close(done)
					c.Close()
					select {
					case <-over:
						return
					case <-time.After(time.Millisecond): // on the way
					}
				}
			})
		}
	}
	time.Sleep(100 * time.Millisecond)
	for range 5 {
		begin := time.Now()
		c := l.dial()
		_, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		text, readErr := io.ReadAll(c)
		if took := time.Since(begin); err != nil || readErr != nil || !bytes.HasSuffix(text, []byte("ok")) || took > 100*time.Millisecond {
			t.Errorf("after %v: %q, %v, %v", took, text, err, readErr)
		}
		c.Close()
		time.Sleep(7 * time.Millisecond)
	}
	close(over)
	served.Close()
	running.Wait()
	conns.Wait()
}

// TestStopBesidePeersThatReadNothing: each connection over TLS has its peer told of its end, one after the other; those that don't read hold up the
// stop no longer than it may take.
func TestStopBesidePeersThatReadNothing(t *testing.T) {
	pair := ownPair(t)
	synctest.Test(t, func(t *testing.T) {
		m := &memListener{dialled: make(chan net.Conn, maxConns), closed: make(chan struct{})}
		s := New(logr.Discard())
		var conns sync.WaitGroup
		served := s.httpServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), &conns)
		var running sync.WaitGroup
		running.Go(func() {
			_ = served.Serve(tls.NewListener(newListener(m), &tls.Config{Certificates: []tls.Certificate{pair}}))
		})
		for range 20 { // net.Pipe has no buffer: what isn't read isn't written
			raw := m.dial()
			defer raw.Close()
			c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
		}
		// Until net/http knows all connections as idle: time stands still in a bubble in which a goroutine waits for a lock.
		synctest.Wait()
		began := time.Now()
		shutdown([]*http.Server{served}, func() {})
		running.Wait()
		conns.Wait()
		if took := time.Since(began); took > shutdownTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// TestAWriteEndsWithTheListener: a write that waits for its peer when the listener is closed waits no longer than one that
// begins later.
func TestAWriteEndsWithTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memListener{dialled: make(chan net.Conn, 1), closed: make(chan struct{})}
		l := newListener(m)
		defer l.Close()
		peer := m.dial()
		defer peer.Close()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		if err := c.SetWriteDeadline(began.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, l.closing)
		_, err = c.Write([]byte("nobody reads it"))
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != time.Second+shutdownTimeout/2 {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// ownPair is a certificate that nobody but itself has signed.
func ownPair(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A full server closes the connection that has got the least out of the time it had others wait, and no other; it holds no more than it may.
func TestTheWorstIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memListener{dialled: make(chan net.Conn, maxConns+10), closed: make(chan struct{})}
		l := newListener(m)
		defer l.Close()
		var peers []net.Conn
		ended := make(chan int, maxConns+10)
		come := func() *conn {
			t.Helper()
			i, peer := len(peers), m.dial()
			peers = append(peers, peer)
			go func() {
				if _, err := peer.Read(make([]byte, 1)); err != nil {
					ended <- i
				}
			}()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return c.(*conn)
		}
		for i := range maxConns {
			c := come()
			c.sent = 1 << 20
			if i%50 == 7 { // reads next to nothing, and less so the later it came
				c.sent = (1 << 20) / (i + 1)
			}
		}
		time.Sleep(time.Second)
		last := maxConns - 1
		for last%50 != 7 {
			last--
		}
		for worst := last; worst > 0; worst -= 50 {
			come().sent = 1 << 30
			synctest.Wait()
			select {
			case i := <-ended:
				if i != worst {
					t.Errorf("connection %d was closed, not %d", i, worst)
				}
			default:
				t.Fatal("none was closed")
			}
			if len(ended) > 0 || len(l.open) != maxConns {
				t.Fatalf("%d more were closed, %d are open", len(ended), len(l.open))
			}
		}
		for _, p := range peers {
			p.Close()
		}
	})
}
