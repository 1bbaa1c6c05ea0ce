//go:build quota

package room_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// TestWatchProjectQuota: a project quota of the root directory that is used up is reported once, and found to have room
// again, though the rest of the file system, TMPDIR, has room all the time. The writes are the agent's own, and another
// program's.
func TestWatchProjectQuota(t *testing.T) {
	for i, c := range []struct {
		name   string
		inodes bool
		failed func(error) error
	}{
		{"bytes", false, func(err error) error { return err }},
		{"inodes", true, func(err error) error { return err }},
		{"bytes of another program", false, func(err error) error { return errors.New(err.Error()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			bytes, inodes := uint64(40<<20), uint64(0)
			if c.inodes {
				bytes, inodes = 0, 600
			}
			errno := mounttest.LimitProject(t, dir, uint32(1000+i), bytes, inodes)
			if on, err := room.Measure(dir); err != nil || on.Full() || on.Size == 0 || on.Size > 40<<20 && !c.inodes || on.Inodes != 600 && c.inodes {
				t.Fatalf("at first: %+v, %v", on, err)
			}
			watch(t, dir, func(w *watched) {
				filled, path := fill(t, dir, c.inodes), filepath.Join(dir, "file")
				for range 3 {
					err := atomicfile.Write(path, make([]byte, 4<<10), 0o600)
					if !errors.Is(err, errno) {
						t.Fatalf("a write: %v, want %v", err, errno)
					}
					if on, err := room.Measure(path); err != nil || !on.Full() {
						t.Errorf("full: %+v, %v", on, err)
					}
					w.Failed(c.failed(err))
					time.Sleep(time.Minute)
				}
				if got := w.since(0); strings.Count(got, "StorageFull") != 1 || strings.Contains(got, "freed") {
					t.Error(got)
				}
				if err := os.RemoveAll(filled); err != nil {
					t.Fatal(err)
				}
				unix.Sync() // XFS frees inodes in its own time
				if got := w.since(5 * time.Second); got != "freed" {
					t.Errorf("with room again: %q", got)
				}
			})
		})
	}
}
