package room_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// TestDescriptors: a process that can open no file any more ends pods all the same, and nothing else.
func TestDescriptors(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	root := t.TempDir()
	reserve, before := room.NewReserve(root), count()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reserve.Run(ctx) }()
	made := func() bool { // and Run has closed the last file
		_, err := os.Stat(filepath.Join(root, room.Dir, "31"))
		return err == nil && count() == before+64
	}
	for deadline := time.Now().Add(time.Minute); !made(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files are open, %d were before", count(), before)
		}
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(before) + 200, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	var open []*os.File
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	next := func() error {
		f, err := os.Open("/")
		if err == nil {
			open = append(open, f)
		}
		return err
	}
	for err := error(nil); !errors.Is(err, unix.EMFILE); err = next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	loans := 0
	for ; reserve.Spend(next) == nil; loans++ { // each keeps one open
		if err := next(); !errors.Is(err, unix.EMFILE) {
			t.Fatalf("another file: %v", err)
		}
	}
	if loans != 64 {
		t.Errorf("%d descriptors were held back", loans)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
