package handler

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, address string) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, err = io.Copy(io.Discard, c)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ended with %v, not with a reset", err)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-accepted })
	return l.Addr().(*net.TCPAddr)
}

func TestClosingResets(t *testing.T) {
	at := listen(t, "127.0.0.1:0")
	for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1", "localhost"} {
		c, err := dialTCP(t.Context(), host, at.Port)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = dialTCP(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.HasPrefix(err.Error(), "dial tcp 127.0.0.1:") {
		t.Error(err)
	}
}

func TestCancelledWhileConnecting(t *testing.T) {
	port := netip.MustParseAddrPort(blackhole(t)).Port()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if c, err := dialTCP(ctx, "127.0.0.1", int(port)); err == nil {
		c.Close()
		t.Fatal("connected to a full listener")
	} else if ctx.Err() == nil {
		t.Errorf("gave up by itself: %v", err)
	}
}

func TestCutOff(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	ctx, cancel := context.WithCancel(t.Context())
	release := abortOnDone(ctx, ours)
	cancel()
	if _, err := ours.Read(make([]byte, 1)); err == nil {
		t.Error("read something")
	}
	if release() {
		t.Error("released after it cut off")
	}
}
