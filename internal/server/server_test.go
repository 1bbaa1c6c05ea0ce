package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback is an address whose port the system picks.
func loopback() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:0") }

// start runs a server until the test or stop ends it; done receives Run's result.
func start(t *testing.T, listeners ...server.Listener) (s *server.Server, stop context.CancelFunc, done <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s = server.New(logr.Discard(), listeners...)
	result := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		http.DefaultClient.CloseIdleConnections()
	})
	select {
	case <-s.Ready():
	case <-ended:
		t.Fatalf("Run ended: %v", <-result)
	}
	return s, cancel, result
}

func get(t *testing.T, method, url string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
}

func TestServesEveryListener(t *testing.T) {
	s, stop, done := start(t,
		server.Listener{Name: "a", Addr: loopback(), Handler: say("A")},
		server.Listener{Name: "b", Addr: loopback(), Handler: say("B")})
	for name, want := range map[string]string{"a": "A", "b": "B"} {
		if _, body, _ := get(t, http.MethodGet, "http://"+s.Addr(name).String()); body != want {
			t.Errorf("%s answers %q", name, body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", s.Addr("a").String()); err == nil {
		conn.Close()
		t.Error("it still listens after Run has ended")
	}
}

func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := netip.MustParseAddrPort(free.Addr().String())
	free.Close()

	s := server.New(logr.Discard(),
		server.Listener{Name: "health", Addr: first, Handler: say("")},
		server.Listener{Name: "read-only API", Addr: netip.MustParseAddrPort(taken.Addr().String()), Setting: "readOnlyPort", Handler: say("")})
	err = s.Run(t.Context())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "readOnlyPort") || !strings.Contains(err.Error(), "read-only API") {
		t.Errorf("got %v", err)
	}
	// The listener that had been opened is closed again.
	again, err := net.Listen("tcp", first.String())
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestForeignAddress(t *testing.T) {
	s := server.New(logr.Discard(), server.Listener{Name: "x", Addr: netip.MustParseAddrPort("192.0.2.1:0"), Setting: "address", Handler: say("")})
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no network interface has this address: change address") {
		t.Errorf("got %v", err)
	}
}

// A request under way when the server stops gets its answer.
func TestStopLetsRequestsEnd(t *testing.T) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	s, stop, done := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-proceed
		if r.Context().Err() != nil {
			t.Error("the request was cancelled before its time was over")
		}
		io.WriteString(w, "done")
	})})
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + s.Addr("a").String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-entered
	stop()
	close(proceed)
	if got := <-answer; got != "done" {
		t.Errorf("got %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A handler that takes longer than it may is cancelled through its context, and
// waited for.
func TestStopCutsOffLateRequests(t *testing.T) {
	entered := make(chan struct{})
	var ended bool // written by the handler, read after Run has waited for it
	s, stop, done := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		ended = true
	})})
	go func() {
		if resp, err := http.Get("http://" + s.Addr("a").String()); err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	begin := time.Now()
	stop()
	<-done
	if !ended {
		t.Error("Run ended before the handler")
	}
	if d := time.Since(begin); d < 1500*time.Millisecond || d > 4*time.Second {
		t.Errorf("it took %v to stop, want about 2 s", d)
	}
}

func TestStopWithConnectionThatSaysNothing(t *testing.T) {
	s, stop, done := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: say("A")})
	conn, err := net.Dial("tcp", s.Addr("a").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// An answer to a second connection shows that the first one was accepted.
	get(t, http.MethodGet, "http://"+s.Addr("a").String())
	stop()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("a silent connection keeps the server from stopping")
	}
}

func TestTooLongHeader(t *testing.T) {
	s, _, _ := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: say("A")})
	conn, err := net.Dial("tcp", s.Addr("a").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n", strings.Repeat("a", 64<<10))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if !strings.Contains(line, "431") {
		t.Errorf("got %q", line)
	}
}

// Whoever may connect can't have the agent hold more than so many connections.
func TestConnectionsAreLimited(t *testing.T) {
	const limit = 128
	var now atomic.Int32
	open, held := make(chan struct{}, limit+1), make(chan struct{})
	s, _, _ := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if now.Add(1) > limit {
			t.Errorf("more than %d connections are served at once", limit)
		}
		open <- struct{}{}
		<-held
		now.Add(-1)
	})})
	var conns []net.Conn
	for i := range limit + 1 {
		c, err := net.Dial("tcp", s.Addr("a").String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if i < limit {
			<-open // a connection whose request isn't read yet would be closed for the next one
		}
	}
	close(held)
	for _, c := range conns { // the one that waited has its turn, too
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-open:
	default:
		t.Error("the request that waited wasn't served")
	}
}

// Peers that hold connections open for nothing don't keep others from being answered.
func TestHeldConnectionsKeepNobodyWaiting(t *testing.T) {
	const many = 200 // of each, which is more than are served at once
	answer := bytes.Repeat([]byte("a"), 8<<20)
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(answer) // fails when the connection is cut
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	for name, request := range map[string]string{
		"silent":      "",
		"half-open":   "GET / HTTP/1.1\r\nHost:",
		"idle":        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"slow reader": "GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
		"slow writer": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nbody",
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := start(t, server.Listener{Name: "a", Addr: loopback(), Handler: large})
			addr := s.Addr("a").String()
			for range many {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil { // or the kernel reads for the slow ones
					t.Fatal(err)
				}
				_, _ = io.WriteString(c, request) // fails where it was cut already
			}
			// The shortest of the server's own limits would need 5 s for each 128 of them.
			client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for range 20 {
				resp, err := client.Get("http://" + addr)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(text) != "ok" {
					t.Fatalf("got %q, %v", text, err)
				}
			}
		})
	}
}
