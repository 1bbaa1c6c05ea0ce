package safeopen_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return safeopentest.Main(func() int { return mounttest.Run(m) }) }))
}

// TestWithoutOpenat2 runs everything again where the paths are walked here. Whatever the error is, the walk is the same.
func TestWithoutOpenat2(t *testing.T) {
	for errno, skip := range map[unix.Errno]string{unix.ENOSYS: "^TestAttack", unix.EPERM: "^TestAttack|LongWay|LeftOpen"} {
		t.Run(errno.Error(), func(t *testing.T) {
			safeopentest.Again(t, errno, ".", skip)
		})
	}
}

func TestTheKernelWalksUnlessItCannot(t *testing.T) {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH})
	if err == nil {
		must(t, unix.Close(fd))
	}
	if (err != nil) != safeopentest.Walks() {
		t.Errorf("openat2: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func path(t testing.TB, name string) *os.File {
	t.Helper()
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func mount(t testing.TB, source, target, kind string, flags uintptr) {
	t.Helper()
	must(t, unix.Mount(source, target, kind, flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // mostly gone by then
}

// house makes a volume beside a directory that isn't the pod's.
func house(t testing.TB) (root *os.File, volume, outside string) {
	t.Helper()
	top := t.TempDir()
	volume, outside = filepath.Join(top, "volume"), filepath.Join(top, "outside")
	write(t, filepath.Join(outside, "f"), "outside")
	for name, text := range map[string]string{"f": "top", "a/f": "a", "a/b/f": "b", "a/b/c/f": "c"} {
		write(t, filepath.Join(volume, name), text)
	}
	for name, target := range map[string]string{
		"toFile": "a/f", "toDir": "a/b", "a/up": "..", "a/b/around": "../../a/b/./c", "toLink": "toDir/f", "slash": "a//b/", "a/sibling": "../f",
		"dangling": "nowhere", "deepDangling": "a/nowhere/x",
		"absolute": outside + "/f", "absoluteInside": volume + "/f", "relative": "../outside/f", "dirOutside": "../outside", "toRoot": "/", "a/tooFarUp": "../..",
		"magic": "/proc/self/root" + outside, "loop": "loop", "ping": "pong", "pong": "ping",
	} {
		must(t, os.Symlink(target, filepath.Join(volume, name)))
	}
	return path(t, volume), volume, outside
}

func TestOpen(t *testing.T) {
	root, volume, outside := house(t)
	must(t, os.Mkdir(filepath.Join(volume, "proc"), 0o755))
	mount(t, "proc", filepath.Join(volume, "proc"), "proc", 0)
	last := "f"
	for i := range 41 {
		must(t, os.Symlink(last, filepath.Join(volume, fmt.Sprint("link", i))))
		last = fmt.Sprint("link", i)
	}
	for _, tc := range []struct {
		path string
		text string // of the file
		err  error
		// noLinks is OpenNoLinks' outcome where it is another one.
		noLinks error
	}{
		{path: "f", text: "top"},
		{path: "./a//b/./f", text: "b"},
		{path: "a/b/c/../f", text: "b"},
		{path: "a/../a/b/../../f", text: "top"},
		{path: "toFile", text: "a", noLinks: unix.ELOOP},
		{path: "toDir/f", text: "b", noLinks: unix.ELOOP},
		{path: "toDir/../f", text: "a", noLinks: unix.ELOOP},
		{path: "toLink", text: "b", noLinks: unix.ELOOP},
		{path: "a/up/f", text: "top", noLinks: unix.ELOOP},
		{path: "a/b/around/f", text: "c", noLinks: unix.ELOOP},
		{path: "slash/f", text: "b", noLinks: unix.ELOOP},
		{path: "a/sibling", text: "top", noLinks: unix.ELOOP},
		{path: "link39", text: "top", noLinks: unix.ELOOP},
		{path: "link40", err: unix.ELOOP},
		{path: "none", err: unix.ENOENT},
		{path: "none/f", err: unix.ENOENT},
		{path: "", err: unix.ENOENT},
		{path: "dangling", err: unix.ENOENT, noLinks: unix.ELOOP},
		{path: "deepDangling", err: unix.ENOENT, noLinks: unix.ELOOP},
		{path: "f/", err: unix.ENOTDIR},
		{path: "f/.", err: unix.ENOTDIR},
		{path: "f/f", err: unix.ENOTDIR},
		{path: "toFile/f", err: unix.ENOTDIR, noLinks: unix.ELOOP},
		{path: "a\x00b", err: unix.EINVAL},
		{path: strings.Repeat("n", 256), err: unix.ENAMETOOLONG},
		{path: outside + "/f", err: safeopen.ErrEscapes},
		{path: volume + "/f", err: safeopen.ErrEscapes},
		{path: "..", err: safeopen.ErrEscapes},
		{path: "../volume/f", err: safeopen.ErrEscapes},
		{path: "a/../../outside/f", err: safeopen.ErrEscapes},
		{path: "a/b/../../../outside/f", err: safeopen.ErrEscapes},
		{path: "absolute", err: safeopen.ErrEscapes},
		{path: "absoluteInside", err: safeopen.ErrEscapes},
		{path: "relative", err: safeopen.ErrEscapes},
		{path: "dirOutside/f", err: safeopen.ErrEscapes},
		{path: "toRoot", err: safeopen.ErrEscapes},
		{path: "toRoot/etc/passwd", err: safeopen.ErrEscapes},
		{path: "a/tooFarUp/outside/f", err: safeopen.ErrEscapes},
		{path: "magic/f", err: safeopen.ErrEscapes},
		{path: "proc/thread-self/cwd", err: safeopen.ErrEscapes},
		{path: "proc/self/root/etc/passwd", err: safeopen.ErrEscapes},
		{path: "loop", err: unix.ELOOP},
		{path: "ping/f", err: unix.ELOOP},
	} {
		for _, way := range []struct {
			name string
			open func(*os.File, string, int, uint32) (*os.File, error)
			err  error
		}{{"Open", safeopen.Open, tc.err}, {"OpenNoLinks", safeopen.OpenNoLinks, cmp.Or(tc.noLinks, tc.err)}, {"OpenSameMount", safeopen.OpenSameMount, tc.err}} {
			f, err := way.open(root, tc.path, os.O_RDONLY, 0)
			if way.err != nil {
				if !errors.Is(err, way.err) || f != nil {
					t.Errorf("%s %q: %v, want %v", way.name, tc.path, err, way.err)
				}
				if errors.Is(err, unix.ELOOP) && !errors.Is(err, safeopen.ErrEscapes) {
					t.Errorf("%s %q is refused without ErrEscapes: %v", way.name, tc.path, err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("open %q: ", tc.path)) {
					t.Errorf("%s %q: the error doesn't say so: %v", way.name, tc.path, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %q: %v", way.name, tc.path, err)
				continue
			}
			text, err := io.ReadAll(f)
			if err != nil || string(text) != tc.text {
				t.Errorf("%s %q: read %q, %v", way.name, tc.path, text, err)
			}
			must(t, f.Close())
		}
	}
}

func TestDirsAndTheRootItself(t *testing.T) {
	root, _, _ := house(t)
	for name, want := range map[string]string{".": "f", "./": "f", "a": "b", "a/": "b", "a/b/..": "b", "a/..": "f", "toDir": "c", "toDir/": "c", "a/up": "f"} {
		f, err := safeopen.Open(root, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		names, err := f.Readdirnames(-1)
		if err != nil || !strings.Contains(strings.Join(names, " ")+" ", want+" ") {
			t.Errorf("%q: listed %q, %v", name, names, err)
		}
		must(t, f.Close())
	}
	for _, name := range []string{"f", "toFile"} {
		if _, err := safeopen.Open(root, name, unix.O_RDONLY|unix.O_DIRECTORY, 0); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s as a directory: %v", name, err)
		}
	}
}

func TestTheLastLinkItself(t *testing.T) {
	root, _, _ := house(t)
	for _, name := range []string{"toFile", "absolute", "loop", "dangling"} {
		for _, open := range []func(*os.File, string, int, uint32) (*os.File, error){safeopen.Open, safeopen.OpenNoLinks} {
			f, err := open(root, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
				t.Errorf("%s is opened as %o, %v", name, st.Mode, err)
			}
			if _, err := safeopen.Reopen(f, os.O_RDONLY); !errors.Is(err, safeopen.ErrEscapes) {
				t.Errorf("%s: a link was opened for real: %v", name, err)
			}
			must(t, f.Close())
		}
		if _, err := safeopen.Open(root, name, unix.O_RDONLY|unix.O_NOFOLLOW, 0); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is no file and no directory can be found, but isn't opened: this would hang at the
// FIFO, and a device might do something.
func TestDevicesAreFoundAndNotOpened(t *testing.T) {
	root, volume, _ := house(t)
	must(t, unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(volume, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	must(t, unix.Mknod(filepath.Join(volume, "socket"), unix.S_IFSOCK|0o600, 0))
	for _, name := range []string{"fifo", "device", "socket"} {
		f, err := safeopen.Open(root, name, unix.O_PATH, 0)
		must(t, err)
		must(t, f.Close())
		for _, flags := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE} {
			if _, err := safeopen.Open(root, name, flags, 0o600); !errors.Is(err, safeopen.ErrSpecial) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestMakingAndWritingFiles(t *testing.T) {
	root, volume, outside := house(t)
	for _, name := range []string{"new", "a/b/new", "toDir/newer", "f"} {
		f, err := safeopen.Open(root, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = f.WriteString("w")
		must(t, errors.Join(err, f.Close()))
		if text, err := os.ReadFile(filepath.Join(volume, name)); err != nil || string(text) != "w" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for name, want := range map[string]error{
		"dirOutside/new": safeopen.ErrEscapes, "../new": safeopen.ErrEscapes, "a/../../new": safeopen.ErrEscapes, "dangling": unix.ENOENT, "none/new": unix.ENOENT, "new2/": unix.EISDIR, "f/new": unix.ENOTDIR,
	} {
		if _, err := safeopen.Open(root, name, os.O_WRONLY|os.O_CREATE, 0o600); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := safeopen.Open(root, "f", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside there are %v, %v", names, err)
	}
}

func TestOpeningDoesNotWaitForALease(t *testing.T) {
	root, volume, _ := house(t)
	holder, err := os.OpenFile(filepath.Join(volume, "f"), os.O_RDWR, 0)
	must(t, err)
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, err := safeopen.Open(root, "f", os.O_RDONLY, 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v", err)
	}
}

func TestMounts(t *testing.T) {
	root, volume, outside := house(t)
	mount(t, outside, filepath.Join(volume, "a/b"), "", unix.MS_BIND) // of the same file system
	if f, err := safeopen.Open(root, "toDir/f", os.O_RDONLY, 0); err != nil {
		t.Errorf("what is mounted in the volume: %v", err)
	} else {
		text, err := io.ReadAll(f)
		if err != nil || string(text) != "outside" {
			t.Errorf("read %q, %v", text, err)
		}
		must(t, f.Close())
	}
	for _, name := range []string{"a/b/f", "toDir/f", "a/b/../f", "a/b"} {
		if _, err := safeopen.OpenSameMount(root, name, unix.O_PATH, 0); !errors.Is(err, unix.EXDEV) || !errors.Is(err, safeopen.ErrEscapes) {
			t.Errorf("OpenSameMount %s: %v", name, err)
		}
	}
	a := path(t, filepath.Join(volume, "a"))
	if _, err := safeopen.Enter(a, "b"); !errors.Is(err, unix.EXDEV) || !errors.Is(err, safeopen.ErrEscapes) {
		t.Errorf("Enter: %v", err)
	}
	ids := make(map[uint64]string)
	for _, name := range []string{volume, filepath.Join(volume, "a/b")} {
		id, err := safeopen.MountID(path(t, name))
		must(t, err)
		ids[id] = name
	}
	if id, err := safeopen.MountID(a); err != nil || ids[id] != volume || len(ids) != 2 {
		t.Errorf("mount %d of %v, %v", id, ids, err)
	}
}

func TestEnter(t *testing.T) {
	root, _, _ := house(t)
	f, err := safeopen.Enter(root, "a")
	must(t, err)
	defer f.Close()
	if names, err := f.Readdirnames(-1); err != nil || len(names) == 0 {
		t.Errorf("listed %v, %v", names, err)
	}
	for _, name := range []string{"f", "toDir", "dirOutside", "none", "a/b", ".", "..", "", "/", "loop"} {
		if f, err := safeopen.Enter(root, name); err == nil {
			t.Errorf("entered %q", name)
			must(t, f.Close())
		}
	}
}

// A mount whose server is gone is found, and its number told, without waiting for it.
func TestAHungMountIsFound(t *testing.T) {
	root, volume, _ := house(t)
	dir := filepath.Join(volume, "hung")
	must(t, os.Mkdir(dir, 0o755))
	server := mounttest.Mount(t, dir)
	server.Hang()
	defer server.Resume()
	f, err := safeopen.Open(root, "hung", unix.O_PATH, 0)
	must(t, err)
	defer f.Close()
	id, err := safeopen.MountID(f)
	must(t, err)
	if own, err := safeopen.MountID(root); err != nil || own == id {
		t.Errorf("mount %d in mount %d, %v", id, own, err)
	}
	if _, err := safeopen.Enter(root, "hung"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("Enter: %v", err)
	}
}

// The way can be longer than a path may be.
func TestAVeryLongWay(t *testing.T) {
	root, volume, _ := house(t)
	name := strings.Repeat("n", 200)
	const depth = 1000
	fd, err := unix.Open(volume, unix.O_PATH, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Symlinkat(volume, fd, "link"))
	must(t, unix.Close(fd))
	long := strings.Repeat(name+"/", depth)
	for _, way := range []string{long, long + ".", strings.TrimSuffix(long, "/"), strings.Repeat("./", 5000) + name} {
		f, err := safeopen.OpenNoLinks(root, way, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		must(t, f.Close())
	}
	for way, want := range map[string]error{long + "none": unix.ENOENT, long + "link": unix.ELOOP, long + "../f": unix.ENAMETOOLONG, "/" + long: safeopen.ErrEscapes} {
		_, err := safeopen.OpenNoLinks(root, way, unix.O_PATH, 0)
		if !errors.Is(err, want) || len(err.Error()) > 2*unix.PathMax {
			t.Errorf("%d bytes: %.200v, want %v", len(way), err, want)
		}
	}
	if _, err := safeopen.Open(root, long, unix.O_PATH, 0); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("Open: %.200v", err)
	}
}

// Links that lead ever deeper mustn't cost the agent all of its descriptors.
func TestNothingIsLeftOpen(t *testing.T) {
	root, volume, _ := house(t)
	deep := strings.Repeat("d/", 500)
	must(t, os.MkdirAll(filepath.Join(volume, deep), 0o755))
	must(t, os.Symlink(deep, filepath.Join(volume, "down")))
	must(t, os.MkdirAll(filepath.Join(volume, deep, deep), 0o755))
	must(t, os.Symlink(deep+"none", filepath.Join(volume, deep, "down")))
	before := descriptors(t)
	for _, name := range []string{"f", "a", "toFile", "relative", "loop", "a/tooFarUp/x", "down/down", "down", "f/x", "a/b/c/f", "none"} {
		for _, flags := range []int{unix.O_PATH, os.O_RDONLY, os.O_RDONLY | unix.O_DIRECTORY} {
			if f, err := safeopen.Open(root, name, flags, 0); err == nil {
				must(t, f.Close())
			}
			if f, err := safeopen.OpenSameMount(root, name, flags, 0); err == nil {
				must(t, f.Close())
			}
			if f, err := safeopen.OpenNoLinks(root, name, flags, 0); err == nil {
				must(t, f.Close())
			}
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d files were open before, %d are now", before, after)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}
