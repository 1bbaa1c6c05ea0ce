package safeopen_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

func TestMkdirAll(t *testing.T) {
	root, volume, outside := house(t)
	for name, real := range map[string]string{
		"x/y/z": "x/y/z", "./v//w/": "v/w", "a": "a", "a/b/n": "a/b/n", "toDir/m/k": "a/b/m/k", "a/up/u": "u", ".": ".",
	} {
		f, err := safeopen.MkdirAll(root, name, 0o753)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := f.Stat()
		must(t, err)
		want, err := os.Stat(filepath.Join(volume, real))
		if err != nil || !os.SameFile(got, want) {
			t.Errorf("%s isn't %s: %v", name, real, err)
		}
		must(t, f.Close())
	}
	for name, want := range map[string]error{
		"dirOutside/n": safeopen.ErrEscapes, "../n": safeopen.ErrEscapes, "n/../../m": safeopen.ErrEscapes, "/n": safeopen.ErrEscapes, "loop/n": safeopen.ErrEscapes,
		"dangling": fs.ErrNotExist, "dangling/n": fs.ErrNotExist, "deepDangling/n": fs.ErrNotExist,
		"f": unix.ENOTDIR, "f/n": unix.ENOTDIR, "": fs.ErrNotExist,
	} {
		if _, err := safeopen.MkdirAll(root, name, 0o755); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside there are %v, %v", names, err)
	}
}

func TestDirsHaveTheModeThatIsAskedForWhateverTheUmask(t *testing.T) {
	root, volume, _ := house(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, perm := range []os.FileMode{0o777, 0o750, 0o700, 0o1777 & 0o777} {
		f, err := safeopen.MkdirAll(root, "m"+perm.String()+"/n", uint32(perm))
		must(t, err)
		must(t, f.Close())
		for _, name := range []string{"m" + perm.String(), "m" + perm.String() + "/n"} {
			if st, err := os.Stat(filepath.Join(volume, name)); err != nil || st.Mode().Perm() != perm {
				t.Errorf("%v: made as %v, %v", perm, st.Mode(), err)
			}
		}
	}
	// The umask of all others is what it was.
	must(t, os.Mkdir(filepath.Join(volume, "mine"), 0o777))
	if st, err := os.Stat(filepath.Join(volume, "mine")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the umask was changed: %v, %v", st.Mode(), err)
	}
}

func TestTheGroupIsInherited(t *testing.T) {
	root, volume, _ := house(t)
	must(t, os.Chown(volume, 0, 4711))
	must(t, os.Chmod(volume, os.ModeSetgid|0o770))
	f, err := safeopen.MkdirAll(root, "g/h", 0o770)
	must(t, err)
	defer f.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if st.Gid != 4711 || st.Mode&0o7777 != 0o2770 {
		t.Errorf("group %d, mode %o", st.Gid, st.Mode)
	}
}

// A deep path, which whoever writes manifests chooses, takes far fewer steps than as many calls that make one
// directory each. Every step opens a file, which allocates.
func TestDeepPathsAreMadeAtOnce(t *testing.T) {
	root, _, _ := house(t)
	const depth = 150
	mkdirs := func(path string) {
		f, err := safeopen.MkdirAll(root, path, 0o755)
		must(t, err)
		must(t, f.Close())
	}
	allocations := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	each := allocations(func() {
		for n := range depth {
			mkdirs("one" + strings.Repeat("/d", n))
		}
	})
	if all := allocations(func() { mkdirs("all" + strings.Repeat("/d", depth-1)) }); all > each/4 {
		t.Errorf("%d directories took %d allocations at once, %d one by one", depth, all, each)
	}
}

func TestManyMakeTheSameDir(t *testing.T) {
	root, _, _ := house(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			f, err := safeopen.MkdirAll(root, "p/q/r/s", 0o755)
			if err != nil {
				t.Error(err)
				return
			}
			_ = f.Close() // it was only looked at
		})
	}
	wg.Wait()
}
