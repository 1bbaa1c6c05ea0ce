package subpath_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

func TestMain(m *testing.M) {
	os.Exit(safeopentest.Main(func() int { return mounttest.Run(m) }))
}

// TestWithoutOpenat2 runs everything again where paths are walked without it.
func TestWithoutOpenat2(t *testing.T) {
	safeopentest.Again(t, unix.ENOSYS, ".", "^TestAttack|Killed")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// house is a pod's directory with a volume in it, and a directory beside it that isn't the pod's.
type house struct {
	pods, volume, outside string
	maker                 *subpath.Maker
}

func newHouse(t testing.TB) house {
	t.Helper()
	return newHouseIn(t, t.TempDir())
}

func newHouseIn(t testing.TB, dir string) house {
	t.Helper()
	h := house{pods: filepath.Join(dir, "pods"), outside: filepath.Join(dir, "outside")}
	h.volume = filepath.Join(h.pods, "uid", "volumes", "kind", "vol")
	must(t, os.MkdirAll(h.volume, 0o755))
	must(t, os.Chmod(h.volume, 0o755))
	h.maker = subpath.New(h.pods)
	t.Cleanup(func() { must(t, teardown.Remove(context.Background(), h.pods, "uid")) })
	h.write(t, "a/b/f", "f")
	must(t, os.Mkdir(h.outside, 0o755))
	must(t, os.WriteFile(filepath.Join(h.outside, "f"), []byte("outside"), 0o644))
	return h
}

func (h house) in(name string) string { return filepath.Join(h.volume, name) }

func (h house) write(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(h.in(name)), 0o755))
	must(t, os.WriteFile(h.in(name), []byte(text), 0o644))
}

func (h house) request(path string) subpath.Request {
	return subpath.Request{UID: "uid", Volume: "vol", Container: "c", Index: 3, Root: h.volume, Path: path}
}

func (h house) bind(t testing.TB, path string) string {
	t.Helper()
	place, err := h.maker.Bind(t.Context(), h.request(path))
	must(t, err)
	if want := filepath.Join(h.pods, "uid/volume-subpaths/vol/c/3"); place != want {
		t.Fatalf("bound at %s, want %s", place, want)
	}
	return place
}

// check sees that exactly one mount is at the place, and that it shows what path is.
func check(t testing.TB, place, path string) {
	t.Helper()
	if list, err := mounts.List(place); err != nil || len(list) != 1 {
		t.Errorf("mounted at %s: %v, %v", place, list, err)
	}
	same(t, place, path)
}

func same(t testing.TB, place, path string) {
	t.Helper()
	got, err := os.Lstat(place)
	must(t, err)
	want, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(got, want) {
		t.Errorf("%s (%v) isn't %s (%v)", place, got.Mode(), path, want.Mode())
	}
}

func TestFilesAndDirs(t *testing.T) {
	h := newHouse(t)
	must(t, os.Symlink("a/b", h.in("link")))
	must(t, os.Symlink("../a/./b/f", h.in("a/around")))
	must(t, unix.Mkfifo(h.in("fifo"), 0o600))
	must(t, unix.Mknod(h.in("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	must(t, unix.Mknod(h.in("socket"), unix.S_IFSOCK|0o600, 0))
	// Each takes the place of the one before.
	for _, path := range []string{"a", "a/b/f", "a/b", "fifo", "a/b/", "./a//b", "device", "link", "link/f", "a/around", "socket", "", ".", "./."} {
		check(t, h.bind(t, path), h.in(path))
		check(t, h.bind(t, path), h.in(path))
	}
	for _, dir := range []string{"uid/volume-subpaths", "uid/volume-subpaths/vol", "uid/volume-subpaths/vol/c"} {
		if st, err := os.Stat(filepath.Join(h.pods, dir)); err != nil || st.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
}

func TestWhatContainersSeeStaysWhatWasBound(t *testing.T) {
	h := newHouse(t)
	place := h.bind(t, "a/b")
	must(t, os.Rename(h.in("a"), h.in("moved")))
	must(t, os.Symlink(h.outside, h.in("a")))
	if text, err := os.ReadFile(filepath.Join(place, "f")); err != nil || string(text) != "f" {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestMissingDirsAreMadeLikeTheVolume(t *testing.T) {
	h := newHouse(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	must(t, os.Chown(h.volume, 0, 4711))
	must(t, os.Chmod(h.volume, os.ModeSetgid|0o777))
	must(t, os.Symlink("a/b", h.in("link")))
	for path, real := range map[string]string{"new/er": "new/er", "a/new": "a/new", "link/new": "a/b/new"} {
		check(t, h.bind(t, path), h.in(real))
		if st, err := os.Stat(h.in(real)); err != nil || st.Mode().Perm() != 0o777 || !st.IsDir() {
			t.Errorf("%s: %v, %v", real, st.Mode(), err)
		}
	}
	var st unix.Stat_t
	must(t, unix.Stat(h.in("new/er"), &st))
	if st.Gid != 4711 || st.Mode&unix.S_ISGID == 0 {
		t.Errorf("group %d, mode %o", st.Gid, st.Mode)
	}
}

func TestSwappedContentIsBoundAnew(t *testing.T) {
	h := newHouse(t)
	// As a ConfigMap's volume does it.
	h.write(t, "..1/key", "one")
	h.write(t, "..2/key", "two")
	must(t, os.Symlink("..1", h.in("..data")))
	must(t, os.Symlink("..data/key", h.in("key")))
	place := h.bind(t, "key")
	must(t, os.Symlink("..2", h.in("..data_tmp")))
	must(t, os.Rename(h.in("..data_tmp"), h.in("..data")))
	if text, err := os.ReadFile(place); err != nil || string(text) != "one" {
		t.Errorf("what is bound was changed: %q, %v", text, err)
	}
	must(t, os.RemoveAll(h.in("..1")))
	check(t, h.bind(t, "key"), h.in("..2/key"))
	// A directory where a file was.
	must(t, os.Remove(h.in("key")))
	must(t, os.Mkdir(h.in("key"), 0o755))
	check(t, h.bind(t, "key"), h.in("key"))
}

func TestWhatUsesTheOldContentMayGoOn(t *testing.T) {
	h := newHouse(t)
	place := h.bind(t, "a/b")
	held, err := os.Open(filepath.Join(place, "f"))
	must(t, err)
	defer held.Close()
	check(t, h.bind(t, "a"), h.in("a"))
}

func TestMountsInTheVolume(t *testing.T) {
	h := newHouse(t)
	must(t, unix.Mount("tmpfs", h.in("a"), "tmpfs", 0, ""))
	h.write(t, "a/in", "in a mount")
	check(t, h.bind(t, "a/in"), h.in("a/in"))
	check(t, h.bind(t, "a/made"), h.in("a/made"))
	// Read-only since then: what was bound could be written to.
	place := h.bind(t, "a")
	must(t, unix.Mount("", h.in("a"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if err := os.WriteFile(filepath.Join(place, "w"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, h.bind(t, "a"), h.in("a"))
	if err := os.WriteFile(filepath.Join(place, "w"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a volume that is read-only: %v", err)
	}
}

func TestVolumesThatAreFiles(t *testing.T) {
	h := newHouse(t)
	r := h.request("")
	r.Root = h.in("a/b/f")
	place, err := h.maker.Bind(t.Context(), r)
	must(t, err)
	check(t, place, r.Root)
	r.Path = "x"
	if _, err := h.maker.Bind(t.Context(), r); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}

func TestVolumesThatAreMountedWhenTheyAreUsed(t *testing.T) {
	h := newHouse(t)
	r := h.request("made")
	r.Root = t.TempDir()
	safeopentest.Automount(t, r.Root)
	if place, err := h.maker.Bind(t.Context(), r); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), r.Root) {
		t.Errorf("it was passed over: %q, %v", place, err)
	}
}

func TestRefused(t *testing.T) {
	h := newHouse(t)
	for link, target := range map[string]string{
		"absolute": h.outside, "relative": "../../../../../outside", "root": "/", "up": "..", "loop": "loop", "magic": "/proc/self/cwd", "dangling": "nowhere", "inside": h.volume + "/a",
	} {
		must(t, os.Symlink(target, h.in(link)))
	}
	for _, tc := range []struct {
		path     string
		readOnly bool
		err      error
		says     string
	}{
		{path: "..", err: safeopen.ErrEscapes, says: `".." in it`},
		{path: "a/../../vol", err: safeopen.ErrEscapes, says: `".." in it`},
		{path: "a/..", err: safeopen.ErrEscapes, says: `".." in it`},
		{path: h.outside, err: safeopen.ErrEscapes, says: "absolute"},
		{path: "/", err: safeopen.ErrEscapes, says: "absolute"},
		{path: "absolute", err: safeopen.ErrEscapes, says: "leads out of the volume"},
		{path: "absolute/f", err: safeopen.ErrEscapes, says: "leads out of the volume"},
		{path: "absolute/new", err: safeopen.ErrEscapes, says: "leads out of the volume"},
		{path: "relative/new/er", err: safeopen.ErrEscapes, says: "leads out of the volume"},
		{path: "root/etc", err: safeopen.ErrEscapes},
		{path: "up/vol2", err: safeopen.ErrEscapes},
		{path: "loop", err: safeopen.ErrEscapes, says: "form a loop"},
		{path: "magic", err: safeopen.ErrEscapes, says: "leads out of the volume"},
		{path: "inside", err: safeopen.ErrEscapes, says: "links have to be relative"},
		{path: "dangling", err: fs.ErrNotExist, says: "a symbolic link is there that leads to nothing"},
		{path: "dangling/x", err: fs.ErrNotExist},
		{path: "a/b/f/x", err: unix.ENOTDIR, says: "isn't a directory"},
		{path: "a/b/f/", err: unix.ENOTDIR},
		{path: "missing", readOnly: true, err: fs.ErrNotExist, says: "the volume is read-only: correct the path"},
		{path: "a\x00b", err: unix.EINVAL},
		{path: strings.Repeat("n", 256), err: unix.ENAMETOOLONG},
	} {
		r := h.request(tc.path)
		r.ReadOnly = tc.readOnly
		place, err := h.maker.Bind(t.Context(), r)
		if !errors.Is(err, tc.err) || place != "" || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), fmt.Sprintf("subPath %q: ", tc.path)) {
			t.Errorf("%q: %v, want %v that says %q", tc.path, err, tc.err, tc.says)
		}
	}
	if names, err := os.ReadDir(h.outside); err != nil || len(names) != 1 {
		t.Errorf("outside there are %v, %v", names, err)
	}
	if list, err := mounts.List(h.pods); err != nil || len(list) > 0 {
		t.Errorf("mounted: %v, %v", list, err)
	}
}

func TestAFileSystemThatIsReadOnly(t *testing.T) {
	h := newHouse(t)
	must(t, unix.Mount(h.volume, h.volume, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", h.volume, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if _, err := h.maker.Bind(t.Context(), h.request("missing")); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "the volume's file system is read-only: correct the path") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(h.bind(t, "a"), "w"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a volume that is read-only: %v", err)
	}
}

func TestOddNames(t *testing.T) {
	h := newHouse(t)
	for name, change := range map[string]func(*subpath.Request){
		"UID": func(r *subpath.Request) { r.UID = "../uid" }, "volume": func(r *subpath.Request) { r.Volume = ".." },
		"container": func(r *subpath.Request) { r.Container = "" }, "index": func(r *subpath.Request) { r.Index = -1 },
	} {
		r := h.request("a")
		change(&r)
		if _, err := h.maker.Bind(t.Context(), r); err == nil {
			t.Errorf("%s: %+v was bound", name, r)
		}
	}
	r := h.request("a")
	r.Root += "gone"
	if _, err := h.maker.Bind(t.Context(), r); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a volume that isn't there: %v", err)
	}
}

// What is at the place by some accident is put right.
func TestAnyPlaceIsPutRight(t *testing.T) {
	h := newHouse(t)
	dir := filepath.Join(h.pods, "uid/volume-subpaths/vol/c")
	place := filepath.Join(dir, "3")
	must(t, os.MkdirAll(dir, 0o750))
	for name, spoil := range map[string]func() error{
		"a link": func() error { return os.Symlink(h.outside, place) }, "a file": func() error { return os.WriteFile(place, nil, 0o600) },
		"a directory": func() error { return os.Mkdir(place, 0o700) }, "a FIFO": func() error { return unix.Mkfifo(place, 0o600) },
		"stacked mounts": func() error {
			return errors.Join(os.Mkdir(place, 0o700), unix.Mount(h.volume, place, "", unix.MS_BIND, ""), unix.Mount("tmpfs", place, "tmpfs", 0, ""))
		},
	} {
		must(t, spoil())
		for _, path := range []string{"a", "a/b/f"} {
			h.bind(t, path)
			if list, err := mounts.List(place); err != nil || len(list) != 1 {
				t.Errorf("%s: %v, %v", name, list, err)
			}
			same(t, place, h.in(path))
		}
		must(t, teardown.Remove(t.Context(), dir, "3"))
	}
	if text, err := os.ReadFile(filepath.Join(h.outside, "f")); err != nil || string(text) != "outside" {
		t.Errorf("outside: %q, %v", text, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	h := newHouse(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r := h.request([]string{"a", "a/b", "a/b/f", "made/for/all"}[i%4])
			if i%8 < 4 {
				r.Index = 100 + i
			}
			if _, err := h.maker.Bind(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := mounts.List(h.pods)
	must(t, err)
	if len(list) != 17 {
		t.Errorf("%d mounts, want one at each of 17 places", len(list))
	}
	check(t, h.bind(t, "a"), h.in("a"))
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.maker.Bind(ctx, h.request("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
