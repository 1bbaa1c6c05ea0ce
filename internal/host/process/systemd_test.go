package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
)

// manager is a service manager's end of the line.
type manager struct {
	t      *testing.T
	socket string
	conn   *net.UnixConn
}

func listen(t *testing.T, socket string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	return &manager{t, socket, conn}
}

// next is the message that is there already, or "".
func (m *manager) next() string {
	m.t.Helper()
	raw, err := m.conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	var text string
	var failed error
	buffer := make([]byte, 8192)
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		if err == nil {
			text = string(buffer[:n])
		} else if !errors.Is(err, unix.EAGAIN) {
			failed = err
		}
	})
	if err := errors.Join(err, failed); err != nil {
		m.t.Fatal(err)
	}
	return text
}

// environment is one that a service manager made, with what was taken out of it.
type environment map[string]string

func (e environment) lookup(name string) string { return e[name] }
func (e environment) unset(name string) error   { delete(e, name); return nil }

func (m *manager) notifier(more environment) *Notifier {
	m.t.Helper()
	e := environment{"NOTIFY_SOCKET": m.socket}
	maps.Copy(e, more)
	n, err := New(e.lookup, e.unset)
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

func TestMessages(t *testing.T) {
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": fmt.Sprintf("@deckhand-test-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			m := listen(t, socket)
			n := m.notifier(nil)
			for _, c := range []struct {
				tell func() error
				want string
			}{
				{func() error { return n.Ready("20 pods") }, "READY=1\nSTATUS=20 pods"},
				{n.Stopping, "STOPPING=1"},
				{func() error { return n.Status("1 of 2\nREADY=1") }, "STATUS=1 of 2 READY=1"},
				{func() error { return n.Status(strings.Repeat("ä", 4000)) }, "STATUS=" + strings.Repeat("ä", maxStatus/2)},
				{func() error { return n.Status("x" + strings.Repeat("ä", 4000)) }, "STATUS=x" + strings.Repeat("ä", maxStatus/2-1)},
			} {
				if err := c.tell(); err != nil {
					t.Fatal(err)
				}
				if got := m.next(); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
			}
		})
	}
}

func TestReloadingCarriesTheTime(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	n := m.notifier(nil)
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano() / 1000
	}
	before := now()
	if err := n.Reloading(); err != nil {
		t.Fatal(err)
	}
	after := now()
	usec, ok := strings.CutPrefix(m.next(), "RELOADING=1\nMONOTONIC_USEC=")
	at, err := strconv.ParseInt(usec, 10, 64)
	if !ok || err != nil || at < before || at > after {
		t.Errorf("told %q of a time between %d and %d", usec, before, after)
	}
}

func TestEnvironmentIsTakenAway(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/nobody")
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n, err := New(os.Getenv, os.Unsetenv)
	if err != nil {
		t.Fatal(err)
	}
	if n.watchdog != 30*time.Second {
		t.Errorf("the watchdog's period is %s", n.watchdog)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if v, there := os.LookupEnv(name); there {
			t.Errorf("children would inherit %s=%s", name, v)
		}
	}
	broken := errors.New("no")
	if _, err := New(os.Getenv, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("that the environment stays as it is goes unsaid: %v", err)
	}
}

func TestWithoutAServiceManager(t *testing.T) {
	e := environment{"WATCHDOG_USEC": "1000000"}
	n, err := New(e.lookup, e.unset)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(n.Ready(""), n.Status(""), n.Reloading(), n.Stopping(), n.Watchdog(ctx, nil, logr.Discard())); err != nil {
		t.Error(err)
	}
}

func TestUnusableEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		e    environment
		want string
	}{
		"relative socket":    {environment{"NOTIFY_SOCKET": "notify"}, `NOTIFY_SOCKET is "notify"`},
		"empty abstract":     {environment{"NOTIFY_SOCKET": "@"}, `NOTIFY_SOCKET is "@"`},
		"vsock":              {environment{"NOTIFY_SOCKET": "vsock:2:1234"}, "absolute path"},
		"watchdog no number": {environment{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30s"}, "not a number of microseconds"},
		"watchdog zero":      {environment{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, "not a number of microseconds"},
		"watchdog huge":      {environment{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9223372036854775807"}, "not a number of microseconds"},
		"watchdog short":     {environment{"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "500000"}, "every 500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c.e.lookup, c.e.unset); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("says %v, not %q", err, c.want)
			}
		})
	}
}

func TestServiceManagerThatDoesNotListen(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	n := m.notifier(nil)
	if err := m.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(""); err == nil || !strings.Contains(err.Error(), "READY=1") || !strings.Contains(err.Error(), m.socket) {
		t.Errorf("says %v", err)
	}
	// The service manager is back under the same name.
	if err := os.RemoveAll(m.socket); err != nil {
		t.Fatal(err)
	}
	m = listen(t, m.socket)
	if err := n.Stopping(); err != nil || m.next() != "STOPPING=1" {
		t.Errorf("a manager that came back isn't told: %v", err)
	}
}

// A manager that doesn't read holds nobody up for long.
func TestFullQueue(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	n := m.notifier(nil)
	var err error
	for range 10_000 {
		if err = n.Stopping(); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("says %v", err)
	}
}

// patient is a Notifier with a watchdog of 20 s, so that a sign is due every 10 s.
func patient(m *manager) *Notifier {
	return m.notifier(environment{"WATCHDOG_USEC": "20000000"})
}

// run runs the watchdog until the test's end, and returns what it logs.
func run(t *testing.T, n *Notifier, healthy func(context.Context) error) *[]string {
	t.Helper()
	lines := new([]string)
	log := funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Watchdog(ctx, healthy, log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return lines
}

// pings lets time go by and counts the signs of life that came meanwhile.
func (m *manager) pings(after time.Duration) (n int) {
	m.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	for text := m.next(); text != ""; text = m.next() {
		if text != "WATCHDOG=1" {
			m.t.Errorf("told %q", text)
		}
		n++
	}
	return n
}

func TestWatchdogPings(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	synctest.Test(t, func(t *testing.T) {
		said := run(t, patient(m), func(context.Context) error { return nil })
		for i, want := range []int{1, 0, 1, 2} {
			if got := m.pings([]time.Duration{0, 9900 * time.Millisecond, 200 * time.Millisecond, 20 * time.Second}[i]); got != want {
				t.Errorf("step %d: %d signs of life, want %d", i, got, want)
			}
		}
		if len(*said) != 0 {
			t.Errorf("logs %q", *said)
		}
	})
}

func TestWatchdogOfTheSick(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	synctest.Test(t, func(t *testing.T) {
		var ill atomic.Pointer[error]
		become := func(err error) { ill.Store(&err) }
		become(nil)
		said := run(t, patient(m), func(context.Context) error { return *ill.Load() })
		if got := m.pings(time.Second); got != 1 {
			t.Errorf("%d signs of life at first", got)
		}
		become(errors.New("the workers stand still"))
		if got := m.pings(30 * time.Second); got != 0 {
			t.Errorf("%d signs of life of a sick one", got)
		}
		become(errors.New("the list of pods is old"))
		m.pings(30 * time.Second)
		become(nil)
		// Every fifth of 10 s it is looked at again, and then all is as before.
		if got := m.pings(2 * time.Second); got != 1 {
			t.Errorf("%d signs of life of one that got well", got)
		}
		if got := m.pings(20 * time.Second); got != 2 {
			t.Errorf("%d signs of life later", got)
		}
		if len(*said) != 3 || !strings.Contains((*said)[0], "stand still") || !strings.Contains((*said)[1], "is old") || !strings.Contains((*said)[2], "again") {
			t.Errorf("logs %q", *said)
		}
	})
}

// A check that hangs is no sign of life, and says so; one that only takes long
// doesn't make the next sign late.
func TestWatchdogOfTheSlow(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64
		takes.Store(int64(8 * time.Second))
		said := run(t, patient(m), func(ctx context.Context) error {
			select {
			case <-time.After(time.Duration(takes.Load())):
				return nil
			case <-ctx.Done():
				return fmt.Errorf("no answer: %w", ctx.Err())
			}
		})
		if got := m.pings(39 * time.Second); got != 4 {
			t.Errorf("%d signs of life in 39 s, with checks of 8 s", got)
		}
		takes.Store(int64(time.Hour))
		m.pings(20 * time.Second) // a check that began before
		if got := m.pings(time.Minute); got != 0 {
			t.Errorf("%d signs of life of one that hangs", got)
		}
		if len(*said) != 1 || !strings.Contains((*said)[0], "no answer") {
			t.Errorf("logs %q", *said)
		}
	})
}

func TestWatchdogOfAnother(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	synctest.Test(t, func(t *testing.T) {
		n := m.notifier(environment{"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"})
		run(t, n, func(context.Context) error { t.Error("looked at"); return nil })
		if got := m.pings(time.Hour); got != 0 {
			t.Errorf("%d signs of life", got)
		}
	})
}
