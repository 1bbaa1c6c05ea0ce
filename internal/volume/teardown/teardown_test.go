package teardown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return safeopentest.Main(func() int { return mounttest.Run(m) }) }))
}

// TestWithoutOpenat2 runs everything again where directories are opened without it.
func TestWithoutOpenat2(t *testing.T) {
	safeopentest.Again(t, unix.ENOSYS, ".", "^TestAttack|Deep|Killed")
}

// house is a directory with the tree to remove in it, and something precious beside it.
type house struct{ parent, tree, precious string }

func newHouse(t testing.TB) house {
	t.Helper()
	return newHouseIn(t, t.TempDir())
}

func newHouseIn(t testing.TB, dir string) house {
	t.Helper()
	h := house{parent: filepath.Join(dir, "pods"), precious: filepath.Join(dir, "precious")}
	h.tree = filepath.Join(h.parent, "uid")
	must(t, os.MkdirAll(h.tree, 0o750))
	must(t, os.Mkdir(h.precious, 0o755))
	must(t, os.WriteFile(filepath.Join(h.precious, "data"), []byte("precious"), 0o644))
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h house) remove() error { return Remove(context.Background(), h.parent, "uid") }

func (h house) checkGone(t interface{ Errorf(string, ...any) }) {
	if _, err := os.Lstat(h.tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(h.precious, "data")); err != nil || string(got) != "precious" {
		t.Errorf("the data outside is now %q, %v", got, err)
	}
}

func mount(t testing.TB, source, target, kind string, flags uintptr) {
	t.Helper()
	must(t, unix.Mount(source, target, kind, flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // mostly gone by then
}

func TestNothingToRemove(t *testing.T) {
	h := newHouse(t)
	must(t, h.remove())
	must(t, h.remove())
	must(t, Remove(t.Context(), filepath.Join(h.parent, "missing"), "uid"))
	h.checkGone(t)
}

func TestATreeThatIsALink(t *testing.T) {
	h := newHouse(t)
	must(t, os.Remove(h.tree))
	must(t, os.Symlink(h.precious, h.tree))
	must(t, h.remove())
	h.checkGone(t)
}

// TestAnyTree plants random trees of hostile things.
func TestAnyTree(t *testing.T) {
	name := rapid.Custom(func(rt *rapid.T) string {
		odd := rapid.SampledFrom([]string{"removing-0", "removing-1", "-rf", "\n", "\xff\xfe", "...", " ", `\040`, "a\tb", strings.Repeat("n", 255)})
		return rapid.OneOf(odd, rapid.StringMatching(`[a-c]{1,2}`)).Draw(rt, "name")
	})
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t)
		dirs := []string{h.tree}
		for range rapid.IntRange(0, 40).Draw(rt, "things") {
			path := filepath.Join(rapid.SampledFrom(dirs).Draw(rt, "dir"), name.Draw(rt, "name"))
			var err error
			switch rapid.IntRange(0, 6).Draw(rt, "thing") {
			case 0:
				err = os.Symlink(h.precious, path)
			case 1:
				err = os.Symlink("../../../../../../..", path)
			case 2:
				err = os.Link(filepath.Join(h.precious, "data"), path)
			case 3:
				err = unix.Mkfifo(path, 0)
			case 4:
				var f *os.File
				if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0); err == nil {
					err = f.Close()
				}
			default:
				if err = os.Mkdir(path, 0); err == nil {
					dirs = append(dirs, path)
				}
			}
			if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, unix.ENAMETOOLONG) {
				rt.Fatal(err)
			}
		}
		if err := h.remove(); err != nil {
			rt.Error(err)
		}
		h.checkGone(rt)
	})
}

// TestDeepAndWide has a chain far deeper than a path can be long, with something in
// every directory of it, and a directory with more names than are read at once.
func TestDeepAndWide(t *testing.T) {
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0) // spares the disk
	h := newHouseIn(t, dir)
	fd, err := unix.Open(h.tree, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for i := range 100_000 {
		must(t, unix.Symlinkat(h.precious, fd, "link"))
		must(t, unix.Mkdirat(fd, "removing-3", 0o700)) // a name the removal itself might choose
		next, err := unix.Openat(fd, "removing-3", unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
		if i == 20 {
			for j := range 3 * batch {
				must(t, unix.Mkdirat(fd, fmt.Sprint("wide-", j), 0o700))
			}
		}
	}
	must(t, unix.Close(fd))
	must(t, h.remove())
	h.checkGone(t)
}

func TestMountsAreTakenOffDeepestFirst(t *testing.T) {
	h := newHouse(t)
	a := filepath.Join(h.tree, "volumes", "a b\n")
	must(t, os.MkdirAll(a, 0o755))
	mount(t, "tmpfs", a, "tmpfs", 0)
	inner := filepath.Join(a, "inner")
	must(t, os.Mkdir(inner, 0o755))
	mount(t, h.precious, inner, "", unix.MS_BIND)
	mount(t, "tmpfs", h.tree, "tmpfs", 0) // hides the others
	must(t, os.Mkdir(filepath.Join(h.tree, "above"), 0o755))
	file := filepath.Join(h.tree, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	mount(t, filepath.Join(h.precious, "data"), file, "", unix.MS_BIND)
	mount(t, filepath.Join(h.precious, "data"), file, "", unix.MS_BIND) // twice on one place
	must(t, h.remove())
	h.checkGone(t)
	noMounts(t, h.parent)
}

func TestBindMountOfTheSameFileSystemIsNotEntered(t *testing.T) {
	h := newHouse(t)
	inner := filepath.Join(h.tree, strings.Repeat("d/", 2*maxDepth), "inner")
	must(t, os.MkdirAll(inner, 0o755))
	mount(t, h.precious, inner, "", unix.MS_BIND)
	must(t, h.remove())
	h.checkGone(t)
	noMounts(t, h.parent)
}

func TestParentReachedOverALink(t *testing.T) {
	h := newHouse(t)
	inner := filepath.Join(h.tree, "inner")
	must(t, os.Mkdir(inner, 0o755))
	mount(t, h.precious, inner, "", unix.MS_BIND)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(h.parent, link))
	must(t, Remove(t.Context(), link, "uid"))
	h.checkGone(t)
}

func TestABusyMountIsLeftAlone(t *testing.T) {
	h := newHouse(t)
	inner := filepath.Join(h.tree, "inner")
	must(t, os.Mkdir(inner, 0o755))
	mount(t, "tmpfs", inner, "tmpfs", 0)
	held, err := os.Create(filepath.Join(inner, "held"))
	must(t, err)
	if err := h.remove(); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), inner) {
		t.Errorf("got %v, want EBUSY naming %s", err, inner)
	}
	if _, err := os.Stat(held.Name()); err != nil {
		t.Errorf("what is in use was deleted: %v", err)
	}
	must(t, held.Close())
	must(t, h.remove())
	h.checkGone(t)
}

func TestLinksInTheWayToAMountAreNotFollowed(t *testing.T) {
	h := newHouse(t)
	outside := filepath.Join(h.precious, "mounted")
	must(t, os.Mkdir(outside, 0o755))
	mount(t, "tmpfs", outside, "tmpfs", 0)
	must(t, os.Symlink(h.precious, filepath.Join(h.tree, "link")))
	other := filepath.Join(h.parent, "other") // another pod's
	must(t, os.Mkdir(other, 0o755))
	mount(t, "tmpfs", other, "tmpfs", 0)
	must(t, os.Symlink("..", filepath.Join(h.tree, "up")))
	dir, err := os.Open(h.parent)
	must(t, err)
	defer dir.Close()
	for _, point := range []string{filepath.Join(h.tree, "link", "mounted"), filepath.Join(h.parent, "..", "precious", "mounted"), filepath.Join(h.tree, "up", "other")} {
		if err := unmount(t.Context(), dir, h.parent, point); err == nil {
			t.Errorf("%s was unmounted over a link", point)
		}
	}
	for _, path := range []string{outside, other} {
		if ok, err := mountinfo.Mounted(path); err != nil || !ok {
			t.Errorf("the mount at %s is gone (%v)", path, err)
		}
	}
}

func TestImmutableFileIsReported(t *testing.T) {
	h := newHouse(t)
	path := filepath.Join(h.tree, "stuck\n")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	const immutable = 0x10
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable))
	if err := h.remove(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), `stuck\n"`) || !strings.Contains(err.Error(), "chattr -i") {
		t.Errorf("got %v, want EPERM naming the file, quoted, and what to do", err)
	}
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0))
	must(t, h.remove())
	h.checkGone(t)
}

func TestEndedContextStopsTheWalk(t *testing.T) {
	h := newHouse(t)
	must(t, os.Mkdir(filepath.Join(h.tree, "a"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Remove(ctx, h.parent, "uid"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestTreeChangingUnderTheWalk lets somebody swap a directory for a link to precious
// data, over and over, while it is removed.
func TestTreeChangingUnderTheWalk(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := newHouse(t)
	for range 200 {
		victim := filepath.Join(h.tree, "a", "b")
		must(t, os.MkdirAll(filepath.Join(victim, "data"), 0o755))
		spare := filepath.Join(h.tree, "a", "spare")
		must(t, os.Symlink(h.precious, spare))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 20 {
				// Whatever is gone already can't be swapped any more.
				if unix.Renameat2(unix.AT_FDCWD, victim, unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE) != nil {
					return
				}
			}
		}()
		must(t, h.remove())
		<-done
		must(t, h.remove())
		h.checkGone(t)
	}
}

func noMounts(t *testing.T, dir string) {
	t.Helper()
	left, err := mounts.List(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}
