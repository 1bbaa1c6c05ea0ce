package filewatch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

func TestFirstWrites(t *testing.T) {
	dir := t.TempDir()
	busy, quiet := filepath.Join(dir, "busy"), filepath.Join(dir, "quiet")
	for _, path := range []string{busy, quiet} {
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(busy, link); err != nil {
		t.Fatal(err)
	}
	f := filewatch.New(filewatch.Every, logr.Discard()).NewFirstWrites()
	if err := f.Watch(busy); err == nil {
		t.Error("a file is watched though nothing runs")
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); f.Run(ctx) }()
	for f.Watch(quiet) != nil {
		runtime.Gosched() // until Run has begun
	}
	write := func(path string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString("more\n"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := errors.Join(f.Watch(busy), f.Watch(link)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			write(busy)
		}
		if got := <-f.Written(); !slices.Equal(got, []string{busy}) {
			t.Fatalf("written: %v, want %s once", got, busy)
		}
	}
	// Nothing of the files that were written to is pending, so the next is that of the quiet one.
	write(quiet)
	if got := <-f.Written(); !slices.Equal(got, []string{quiet}) {
		t.Errorf("written: %v, want %s", got, quiet)
	}
	// A file that is removed is no write.
	if err := errors.Join(f.Watch(quiet), f.Watch(busy), os.Remove(quiet)); err != nil {
		t.Fatal(err)
	}
	write(busy)
	if got := <-f.Written(); !slices.Equal(got, []string{busy}) {
		t.Errorf("written: %v, want %s", got, busy)
	}
	stop()
	<-ran
	if f.Watch(busy) == nil {
		t.Error("a file is watched though nothing runs any more")
	}
}
