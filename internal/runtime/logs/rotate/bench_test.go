package rotate

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// remake is a runtime that makes the new file and has nothing to write.
type remake struct{ path string }

func (r remake) ReopenContainerLog(context.Context, string) error {
	f, err := os.Create(r.path)
	if err != nil {
		return err
	}
	return f.Close()
}

// BenchmarkRotation rotates a log of 10 MiB: renames it, and compresses the one before. It
// reports how much longer that takes than copying the same bytes to another file and to the
// disk ("x-copy").
func BenchmarkRotation(b *testing.B) {
	root, path := logPath(b)
	var text bytes.Buffer
	for i := 0; text.Len() < 10<<20; i++ {
		fmt.Fprintf(&text, "2026-01-02T03:04:05.%09dZ stdout F %d GET /api/v1/things/%d HTTP/1.1 200 in %dms\n", i, i, i*7919, i%977)
	}
	c := Container{ID: "c1", Path: path}
	r := New(Config{Root: root, MaxSize: 1, MaxFiles: 5, Interval: time.Second, Workers: 1}, &containers{}, remake{path}, noWrites{}, logr.Discard())
	k := r.newContainer(c)
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	var floor time.Duration
	for b.Loop() {
		b.StopTimer()
		floor += copyAll(b, path, text.Bytes())
		b.StartTimer()
		if err := r.rotate(b.Context(), k, r.conf.Load()); err != nil {
			b.Fatal(err)
		}
		if err := r.tidy(b.Context(), k, r.conf.Load()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(floor), "x-copy")
}

func copyAll(b *testing.B, path string, text []byte) time.Duration {
	begin := time.Now()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

// BenchmarkLook is what 2,000 containers with small logs cost in each interval.
func BenchmarkLook(b *testing.B) {
	root := b.TempDir()
	running := &containers{}
	for i := range 2000 {
		path := filepath.Join(root, fmt.Sprintf("default_web-%d_u", i), "web", "0.log")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		running.list = append(running.list, Container{ID: fmt.Sprint(i), Path: path})
	}
	r := New(Config{Root: root, MaxSize: 1, MaxFiles: 5, Interval: time.Second, Workers: 1}, running, nil, noWrites{}, logr.Discard())
	r.scan(r.conf.Load())
	for _, k := range r.known {
		k.untidy = false
	}
	clear(r.queue.busy)
	b.ReportAllocs()
	for b.Loop() {
		r.scan(r.conf.Load())
	}
}
