package teardown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// unmountAll does what Remove does with mounts that have others in them, and deletes nothing.
func unmountAll(ctx context.Context, parent, name string) error {
	dir, err := openParent(parent, name)
	if dir == nil || err != nil {
		return err
	}
	defer dir.Close()
	return unmountBelow(ctx, dir, name)
}

func TestUnmountDeletesNothing(t *testing.T) {
	h := newHouse(t)
	a, file := filepath.Join(h.tree, "a"), filepath.Join(h.tree, "file")
	must(t, os.Mkdir(a, 0o755))
	must(t, os.WriteFile(file, []byte("kept"), 0o644))
	must(t, os.WriteFile(filepath.Join(a, "under"), nil, 0o644))
	mount(t, h.precious, a, "", unix.MS_BIND)
	mount(t, "tmpfs", a, "tmpfs", 0)
	mount(t, filepath.Join(h.precious, "data"), file, "", unix.MS_BIND)
	mount(t, "tmpfs", h.tree, "tmpfs", 0) // the place itself
	beside := h.tree + "beside"
	must(t, os.Mkdir(beside, 0o755))
	mount(t, "tmpfs", beside, "tmpfs", 0)
	for range 2 {
		must(t, unmountAll(t.Context(), h.parent, "uid"))
		noMounts(t, h.tree)
		if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
			t.Errorf("the file is %q, %v", text, err)
		}
		if _, err := os.Stat(filepath.Join(a, "under")); err != nil {
			t.Error(err)
		}
	}
	if list, err := mounts.List(beside); err != nil || len(list) != 1 {
		t.Errorf("what is mounted beside it: %v, %v", list, err)
	}
	must(t, unmountAll(t.Context(), filepath.Join(h.parent, "missing"), "uid"))
	must(t, unmountAll(t.Context(), h.parent, "missing"))
}

func TestUnmountReportsWhatIsInUse(t *testing.T) {
	h := newHouse(t)
	inner := filepath.Join(h.tree, "inner")
	must(t, os.Mkdir(inner, 0o755))
	mount(t, "tmpfs", inner, "tmpfs", 0)
	held, err := os.Create(filepath.Join(inner, "held"))
	must(t, err)
	if err := unmountAll(t.Context(), h.parent, "uid"); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), inner) {
		t.Errorf("got %v, want EBUSY naming %s", err, inner)
	}
	must(t, held.Close())
	must(t, unmountAll(t.Context(), h.parent, "uid"))
	noMounts(t, h.tree)
}

// TestWhatIsMountedElsewhereTooIsNotDeleted: a volume that is seen at two places is
// unmounted at one of them, and what is in it stays for the other.
func TestWhatIsMountedElsewhereTooIsNotDeleted(t *testing.T) {
	h := newHouse(t)
	inner, other := filepath.Join(h.tree, "a", "inner"), filepath.Join(h.precious, "other")
	must(t, os.MkdirAll(inner, 0o755))
	must(t, os.Mkdir(other, 0o755))
	mount(t, "tmpfs", other, "tmpfs", 0)
	must(t, os.WriteFile(filepath.Join(other, "kept"), nil, 0o644))
	mount(t, other, inner, "", unix.MS_BIND)
	must(t, h.remove())
	h.checkGone(t)
	if _, err := os.Stat(filepath.Join(other, "kept")); err != nil {
		t.Error(err)
	}
}

func TestOnlyNamesAreTaken(t *testing.T) {
	h := newHouse(t)
	for _, name := range []string{"", ".", "..", "../precious", "uid/..", "/", h.precious} {
		if err := Remove(t.Context(), h.parent, name); err == nil {
			t.Errorf("%q was removed", name)
		}
		if err := unmountAll(t.Context(), h.parent, name); err == nil {
			t.Errorf("%q was unmounted", name)
		}
	}
	if _, err := os.Stat(h.tree); err != nil {
		t.Error(err)
	}
}

// TestAnUnmountThatHangs has something mounted in a file system whose server is gone: the
// way to it hangs, until the context ends.
func TestAnUnmountThatHangs(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := newHouse(t)
	hung := filepath.Join(h.tree, "hung")
	must(t, os.Mkdir(hung, 0o755))
	t.Run("hung", func(t *testing.T) {
		server := mounttest.Mount(t, hung)
		mount(t, filepath.Join(h.precious, "data"), filepath.Join(hung, mounttest.File), "", unix.MS_BIND)
		server.Hang()
		for i, call := range []func(context.Context, string, string) error{unmountAll, Remove} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- call(ctx, h.parent, "uid") }()
			server.AwaitWaiting(t, i+1)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), hung) {
				t.Errorf("got %v, want an error that names %s", err, hung)
			}
		}
		if list, err := mounts.List(hung); err != nil || len(list) != 2 {
			t.Errorf("%v is mounted, %v", list, err)
		}
		server.Resume()
	})
	must(t, h.remove())
	h.checkGone(t)
}

// TestAContextThatHasEnded: no unmount is begun, which would go on after the call.
func TestAContextThatHasEnded(t *testing.T) {
	h := newHouse(t)
	mount(t, "tmpfs", h.tree, "tmpfs", 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, call := range []func(context.Context, string, string) error{unmountAll, Remove} {
		if err := call(ctx, h.parent, "uid"); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "doesn't answer") {
			t.Errorf("got %v", err)
		}
		if list, err := mounts.List(h.tree); err != nil || len(list) != 1 {
			t.Errorf("%v is mounted, %v", list, err)
		}
	}
	must(t, h.remove())
	h.checkGone(t)
}

// TestThereIsNoLookAtTheMountTable for mounts that have none in them, as volumes have: with what others
// mount the table grows, and all of it is read at each look.
func TestThereIsNoLookAtTheMountTable(t *testing.T) {
	h := newHouse(t)
	for i := range 100 {
		dir := filepath.Join(h.parent, fmt.Sprint("other-", i))
		must(t, os.Mkdir(dir, 0o755))
		mount(t, h.precious, dir, "", unix.MS_BIND)
	}
	file := filepath.Join(h.tree, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	mount(t, filepath.Join(h.precious, "data"), file, "", unix.MS_BIND)
	deep := filepath.Join(h.tree, "a", "b")
	must(t, os.MkdirAll(deep, 0o755))
	mount(t, h.precious, deep, "", unix.MS_BIND)
	mount(t, "tmpfs", h.tree+"/a", "tmpfs", 0) // hides the one below
	mount(t, h.precious, h.tree+"/a", "", unix.MS_BIND)
	top := filepath.Join(h.parent, "top")
	must(t, os.Mkdir(top, 0o755))
	mount(t, "tmpfs", top, "tmpfs", 0)
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)

	before := bytesRead(t)
	must(t, h.remove())
	must(t, Remove(t.Context(), h.parent, "top"))
	if n := bytesRead(t) - before; n >= len(table) {
		t.Errorf("%d bytes were read, and the mount table has %d", n, len(table))
	}
	h.checkGone(t)
	if list, err := mounts.List(h.parent); err != nil || len(list) != 100 {
		t.Errorf("of 100 others these are mounted: %v, %v", list, err)
	}
}

// bytesRead is how much this process has read, of whatever files (proc_pid_io(5)).
func bytesRead(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(t, err)
	var n int
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	must(t, err)
	return n
}

// TestAMountInAnotherNamespace: a directory that is a mount point elsewhere only goes, and what is
// mounted there isn't touched.
func TestAMountInAnotherNamespace(t *testing.T) {
	h := newHouse(t)
	inner := filepath.Join(h.tree, "a", "inner")
	must(t, os.MkdirAll(inner, 0o755))
	mounted, removed, seen := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount(h.precious, inner, "", unix.MS_BIND, "")
		}
		mounted <- err
		<-removed
		_, err = os.ReadFile(filepath.Join(h.precious, "data"))
		seen <- err
	}()
	must(t, <-mounted)
	err := h.remove()
	close(removed)
	must(t, err)
	must(t, <-seen)
	h.checkGone(t)
}
