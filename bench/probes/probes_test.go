package probes

import (
	"bufio"
	"context"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

// serving starts a server that ends with the test.
func serving(t *testing.T) netip.AddrPort {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, in) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(strings.TrimSpace(line))
}

// Every way of probing tries what it should, and ends when it is reported.
func TestWays(t *testing.T) {
	o := Options{Count: 20, Period: time.Second}
	for _, w := range o.ways(serving(t)) {
		t.Run(w.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var count counts
			done := make(chan error, 1)
			go func() { done <- w.run(ctx, &count) }()
			for count.ok.Load() < 30 && count.failed.Load() == 0 && report.Pause(ctx, time.Millisecond) == nil {
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if count.ok.Load() < 30 || count.failed.Load() > 0 {
				t.Errorf("%d tries succeeded, %d failed: %s", count.ok.Load(), count.failed.Load(), count.first())
			}
		})
	}
}

// A way whose tries fail isn't measured, but reported.
func TestFailuresAreReported(t *testing.T) {
	o := Options{Count: 1, Period: time.Second, For: time.Millisecond, Rounds: 1}
	failing := way{"failing", func(ctx context.Context, c *counts) error {
		c.add(false, "no luck")
		c.add(false, "again")
		<-ctx.Done()
		return nil
	}}
	if _, err := o.measure(t.Context(), failing); err == nil || !strings.Contains(err.Error(), "2 tries didn't succeed: no luck") {
		t.Errorf("got %v", err)
	}
}

func TestServer(t *testing.T) {
	bench := filepath.Join(t.TempDir(), "bench")
	build := exec.Command("go", "build", "-o", bench, "github.com/deckhand-node/deckhand/bench/cmd/bench")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything is but for the race detector
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build bench: %v\n%s", err, out)
	}
	address, stop, err := start(t.Context(), []string{bench, "probed"})
	if err != nil {
		t.Fatal(err)
	}
	request := "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	if err := bare(address, []byte(request)); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := bare(address, []byte(request)); err == nil {
		t.Error("it still answers")
	}
	if _, _, err := start(t.Context(), []string{bench, "no-such-command"}); err == nil || !strings.Contains(err.Error(), "didn't tell its address") {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Count: 1, Period: 1500 * time.Millisecond, For: 1, Rounds: 1}, {Count: 1, Period: time.Second, For: 1}} {
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "whole seconds") {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func TestTable(t *testing.T) {
	some := func(cpu time.Duration) []result {
		return []result{
			{"floor", 10_000, time.Second, 10 * time.Second},
			{"deckhand", 10_000, cpu, 10 * time.Second},
		}
	}
	for _, c := range []struct {
		count int
		cpu   time.Duration
		want  string
	}{
		{1000, 1300 * time.Millisecond, "deckhand|13.0 %|130 us|1.30x|< 15.0 %|ok"},
		{1000, 1600 * time.Millisecond, "deckhand|16.0 %|160 us|1.60x|< 15.0 %|MISSED"},
		{100, 1300 * time.Millisecond, "deckhand|13.0 %|130 us|1.30x|< 1.5 %|MISSED"},
	} {
		o := Options{Count: c.count, Period: time.Second}
		table := o.table(some(c.cpu))
		if got := strings.Join(table.Rows[1], "|"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if got := strings.Join(table.Rows[0], "|"); got != "floor|10.0 %|100 us|1.00x" {
			t.Errorf("floor: %s", got)
		}
	}
}
