package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
)

func manyFiles(b *testing.B, n int) string {
	dir := b.TempDir()
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("pod-%04d.yaml", i))
		write(b, path, sourcetest.Manifest(fmt.Sprintf("pod-%04d", i), "app:1"))
		old := time.Now().Add(-time.Hour)
		do(b, os.Chtimes(path, old, old))
	}
	return dir
}

// BenchmarkStart is from nothing to the first report.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := manyFiles(b, n)
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				sink := sourcetest.NewRecorder()
				stop := run(b, newSource(b, dir, b.TempDir(), sink))
				sink.Wait(b, "all pods", func(r desired.Report) bool { return len(r.Claims) == n })
				stop()
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

// BenchmarkChange is one file changed among many, to the report.
func BenchmarkChange(b *testing.B) {
	const n = 2000
	dir := manyFiles(b, n)
	sink := sourcetest.NewRecorder()
	run(b, newSource(b, dir, b.TempDir(), sink))
	sink.Wait(b, "all pods", func(r desired.Report) bool { return len(r.Claims) == n })
	b.ReportAllocs()
	before := cpu(b)
	i := 0
	for b.Loop() {
		i++
		image := fmt.Sprintf("app:%d", i)
		write(b, filepath.Join(dir, ".new"), sourcetest.Manifest("pod-0000", image))
		do(b, os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "pod-0000.yaml")))
		sink.Wait(b, "the change", func(r desired.Report) bool { return r.Claims[0].Desired.Pod.Spec.Containers[0].Image == image })
		sink.Clear()
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
}

// cpu is the processor time used so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
