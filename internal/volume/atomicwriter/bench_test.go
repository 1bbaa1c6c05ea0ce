package atomicwriter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func benchFiles(n int) map[string]File {
	files := map[string]File{}
	for i := range 10 {
		files[fmt.Sprintf("file-%d", i)] = file(fmt.Sprintf("%d\n%s", n, strings.Repeat("some configuration\n", 50)))
	}
	return files
}

// BenchmarkFirstWrite is what mounting a volume of 10 files of 1 KB costs.
func BenchmarkFirstWrite(b *testing.B) {
	parent := b.TempDir()
	files := benchFiles(0)
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(parent, fmt.Sprint(i))
		must(b, os.Mkdir(dir, 0o755))
		write(b, dir, files, Options{}, true)
	}
}

// BenchmarkUnchanged is what looking at such a volume costs when nothing changed.
func BenchmarkUnchanged(b *testing.B) {
	dir := b.TempDir()
	files := benchFiles(0)
	write(b, dir, files, Options{}, true)
	for b.Loop() {
		write(b, dir, files, Options{}, false)
	}
}

// BenchmarkUpdate is what a changed one costs, with the grace period.
func BenchmarkUpdate(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, benchFiles(0), Options{}, true)
	for i := 1; b.Loop(); i++ {
		write(b, dir, benchFiles(i), Options{}, true)
	}
}
