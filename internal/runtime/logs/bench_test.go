package logs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// bigLog writes 32 MiB of log and returns the reader and the file.
func bigLog(b *testing.B) (*Reader, string, int64) {
	b.Helper()
	r, dir := newLog(b)
	var text bytes.Buffer
	stamp := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	for i := 0; text.Len() < 32<<20; i++ {
		fmt.Fprintf(&text, "%s stdout F %d GET /api/v1/things/%d HTTP/1.1 200 in %dms, 2345 bytes for somebody\n", stamp.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano), i, i*7919, i%977)
	}
	path := filepath.Join(dir, "0.log")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	return r, path, int64(text.Len())
}

// scan is the floor: it only finds the lines.
func scan(b *testing.B, path string) time.Duration {
	begin := time.Now()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
	}
	return time.Since(begin)
}

// BenchmarkRead reports how much longer reading a log takes than a bufio.Scanner needs to find
// the lines of the same file ("x-floor").
func BenchmarkRead(b *testing.B) {
	r, path, size := bigLog(b)
	for name, opts := range map[string]Options{
		"plain":      {Tail: -1},
		"timestamps": {Tail: -1, Timestamps: true},
		"since":      {Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		"stderr":     {Tail: -1, Stream: Stderr},
		"tail-1000":  {Tail: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			var floor time.Duration
			for b.Loop() {
				if err := r.Copy(context.Background(), io.Discard, Request{Log: web, Options: opts}, nil); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				floor += scan(b, path)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(floor), "x-floor")
		})
	}
}

// BenchmarkReadCompressed reads what rotation has compressed.
func BenchmarkReadCompressed(b *testing.B) {
	r, path, size := bigLog(b)
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	pack(b, filepath.Dir(path), oldest, string(text))
	if err := os.Truncate(path, 0); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		if err := r.Copy(context.Background(), io.Discard, Request{Log: web, Options: all}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
