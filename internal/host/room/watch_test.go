package room_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m.Run)) }

// watched is a Watch that runs, and what it reported since the last call of since.
type watched struct {
	*room.Watch
	mu       sync.Mutex
	happened []string
	filled   atomic.Int32
}

func (w *watched) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened = append(w.happened, what)
}

func (w *watched) NodeEvent(eventType string, reason pod.Reason, message string) {
	w.note(eventType + " " + string(reason) + ": " + message)
}

// since waits for the duration, and returns the reports since the last call.
func (w *watched) since(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	list := strings.Join(w.happened, " | ")
	w.happened = nil
	return list
}

func watch(t *testing.T, root string, test func(*watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{}
		w.Watch = room.NewWatch(room.WatchConfig{Root: root, Events: w, Log: logr.Discard(),
			Full: func(context.Context) []room.FileSystem {
				on, err := room.Measure(root)
				var st unix.Statfs_t
				if err != nil || unix.Statfs(root, &st) != nil {
					return nil
				}
				if on.Free = st.Bavail * uint64(st.Bsize); on.Full() {
					return []room.FileSystem{on}
				}
				return nil
			},
			Filled: func() { w.filled.Add(1) },
			Freed:  func() { w.note("freed") },
			Broken: func(err error) { w.note(fmt.Sprintf("broken: %v", err != nil)) }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		test(w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWatchFullDisk: a full disk is one event, however many writes fail, and failed writes are tried again as soon as there is
// more room.
func TestWatchFullDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		options, words string
		inodes         bool
	}{"bytes": {"size=40m,nr_inodes=1000", "0 B of 40.0 MiB", false}, "inodes": {"size=40m,nr_inodes=400", "and 0 of 400 inodes free", true}} {
		t.Run(name, func(t *testing.T) {
			dir := tmpfs(t, tc.options)
			filled := fill(t, dir, tc.inodes)
			write := func() error { return atomicfile.Write(filepath.Join(dir, "file"), make([]byte, 100), 0o600) }
			watch(t, dir, func(w *watched) {
				if got := w.since(time.Hour); got != "" {
					t.Errorf("before a write failed: %s", got)
				}
				for range 3 {
					w.Failed(write())
				}
				got := w.since(time.Hour)
				if n := w.filled.Load(); n != 3 {
					t.Errorf("3 failed writes are told %d times", n)
				}
				if strings.Count(got, "|") > 0 || !strings.HasPrefix(got, "Warning StorageFull: ") || !strings.Contains(got, dir) || !strings.Contains(got, tc.words) {
					t.Errorf("a full disk: %s", got)
				}
				list, err := os.ReadDir(filled)
				if err != nil {
					t.Fatal(err)
				}
				if tc.inodes {
					for _, e := range list[:20] {
						if err := os.Remove(filepath.Join(filled, e.Name())); err != nil {
							t.Fatal(err)
						}
					}
				} else if err := os.Truncate(filepath.Join(filled, list[0].Name()), 38<<20); err != nil {
					t.Fatal(err)
				}
				if got := w.since(5 * time.Second); got != "freed" || write() != nil {
					t.Errorf("with a little room: %q, %v", got, write())
				}
				if err := os.RemoveAll(filled); err != nil {
					t.Fatal(err)
				}
				if got := w.since(5 * time.Second); got != "freed" {
					t.Errorf("with room: %q", got)
				}
				fill(t, dir, tc.inodes)
				w.Failed(errors.New("rpc error: write " + dir + "/x: no space left on device"))
				if got := w.since(time.Hour); !strings.HasPrefix(got, "Warning StorageFull: ") {
					t.Errorf("full once more: %s", got)
				}
			})
		})
	}
}

// TestWatchOwnWrites: a write that is larger than the disk fills it, fails, and frees what it wrote. It isn't tried again
// for that, but when others have freed more.
func TestWatchOwnWrites(t *testing.T) {
	dir := tmpfs(t, "size=100m")
	others := filepath.Join(dir, "others")
	if err := os.WriteFile(others, make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	watch(t, dir, func(w *watched) {
		fail := func() string {
			filled := fill(t, dir, false)
			w.Failed(&fs.PathError{Op: "write", Path: dir, Err: unix.ENOSPC})
			synctest.Wait()
			if err := os.RemoveAll(filled); err != nil {
				t.Fatal(err)
			}
			return w.since(time.Minute)
		}
		if got := fail(); !strings.HasSuffix(got, " | freed") {
			t.Errorf("the first time: %s", got)
		}
		for range 3 {
			if got := fail(); strings.Contains(got, "freed") {
				t.Errorf("once more: %s", got)
			}
		}
		if err := os.Remove(others); err != nil {
			t.Fatal(err)
		}
		if got := w.since(time.Minute); got != "freed" {
			t.Errorf("with more room: %q", got)
		}
	})
}

// TestWatchOtherInodes: free inodes come and go on a disk without space.
func TestWatchOtherInodes(t *testing.T) {
	dir := tmpfs(t, "size=40m,nr_inodes=10000")
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, dir, false)
	watch(t, dir, func(w *watched) {
		w.Failed(&fs.PathError{Op: "write", Path: dir, Err: unix.ENOSPC})
		w.since(0)
		for i := range 200 {
			if err := os.Remove(filepath.Join(dir, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.since(time.Minute); got != "" {
			t.Errorf("with more inodes: %s", got)
		}
	})
}

// TestWatchWords: a text about a full disk, which may be a pod's, is nothing on a disk with room.
func TestWatchWords(t *testing.T) {
	watch(t, tmpfs(t, "size=64m"), func(w *watched) {
		w.Failed(errors.New(`exec: "/no space left on device": no such file or directory`))
		if got := w.since(time.Hour); got != "" {
			t.Error(got)
		}
	})
}

// TestWatchQuota: a quota that is used up can't be measured; it is reported once while writes fail.
func TestWatchQuota(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	watch(t, dir, func(w *watched) {
		full := &fs.PathError{Op: "write", Path: dir, Err: unix.EDQUOT}
		for range 5 {
			w.Failed(full)
			time.Sleep(time.Minute)
		}
		if got := w.since(time.Hour); strings.Count(got, "StorageFull") != 1 || strings.Contains(got, "freed") {
			t.Error(got)
		}
		if w.Failed(full); !strings.Contains(w.since(0), "StorageFull") {
			t.Error("it isn't reported again")
		}
	})
}

// TestWatchReadOnly: a disk that became read-only is reported, and so is its end, by writes to it.
func TestWatchReadOnly(t *testing.T) {
	dir := tmpfs(t, "size=64m")
	watch(t, dir, func(w *watched) {
		w.Failed(&fs.PathError{Op: "write", Path: "/sys/x", Err: unix.EIO})
		w.Failed(errors.New("another error"))
		if got := w.since(2 * time.Minute); got != "" {
			t.Errorf("an error that isn't the disk's: %s", got)
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.Failed(atomicfile.Write(filepath.Join(dir, "file"), nil, 0o600))
		}
		got := w.since(time.Hour)
		if !strings.HasPrefix(got, "broken: true | Warning StorageFailed: ") || !strings.Contains(got, "read-only file system") || strings.Count(got, "|") != 1 {
			t.Errorf("a read-only disk: %s", got)
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
		if got := w.since(5 * time.Second); got != "broken: false | freed" {
			t.Errorf("a disk that can be written again: %s", got)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("the disk has %v, %v", list, err)
		}
	})
}

// TestWatchBrokenDisk: the end of a short failure is found within seconds, that of a long one within a minute.
func TestWatchBrokenDisk(t *testing.T) {
	source, dir := tmpfs(t, "size=64m"), t.TempDir()
	mirror := mounttest.MountMirror(t, source, dir)
	watch(t, dir, func(w *watched) {
		patience := map[time.Duration]time.Duration{5 * time.Second: 5 * time.Second, time.Hour: time.Minute}
		for failure, patience := range patience {
			mirror.Fail(unix.EIO)
			w.Failed(atomicfile.Write(filepath.Join(dir, "file"), nil, 0o600))
			got := w.since(failure)
			if !strings.HasPrefix(got, "broken: true | Warning StorageFailed: ") || strings.Count(got, "|") != 1 ||
				!strings.Contains(got, "input/output error") {
				t.Errorf("a broken disk: %s", got)
			}
			mirror.Fail(0)
			if got := w.since(patience); got != "broken: false | freed" {
				t.Errorf("after %v: %q", failure, got)
			}
			time.Sleep(time.Hour)
		}
	})
}
