package atomicwriter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(text string) File { return File{Data: []byte(text), Mode: 0o644} }

// write writes the files, and after a change once more, which removes the old ones.
func write(t testing.TB, dir string, files map[string]File, o Options, wantChange bool) {
	t.Helper()
	writeOnce(t, dir, files, o, wantChange)
	if wantChange {
		writeOnce(t, dir, files, o, false)
	}
}

// writeOnce writes the files and fails if that fails, or if it says something else about a change.
func writeOnce(t testing.TB, dir string, files map[string]File, o Options, wantChange bool) {
	t.Helper()
	changed, err := Write(t.Context(), dir, files, o)
	must(t, err)
	if changed != wantChange {
		t.Errorf("changed: %t", changed)
	}
}

var generationName = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`)

// listing is everything in a directory: where links lead, or modes, owners and bytes.
// The generation's name is replaced.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if text, err = os.Readlink(path); err != nil {
				return err
			}
			text = "-> " + generationName.ReplaceAllString(text, "GEN")
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		all[generationName.ReplaceAllString(strings.TrimPrefix(path, dir+"/"), "GEN")] = text
		return nil
	}))
	return all
}

func check(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	got := listing(t, dir)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s is %q, want %q", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestLayout(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		name string
		o    Options
		want map[string]string
	}{
		{"without a group", Options{}, map[string]string{
			"..data": "-> GEN", "a": "-> ..data/a", "tls": "-> ..data/tls", "own": "-> ..data/own", "empty": "-> ..data/empty",
			"GEN": "755 0:0", "GEN/a": "644 0:0 A", "GEN/tls": "755 0:0", "GEN/tls/deep": "755 0:0", "GEN/tls/deep/key": "400 0:0 K", "GEN/tls/cert": "777 0:0 C",
			"GEN/own": "0 1000:0 O", "GEN/empty": "640 0:0 ",
		}},
		{"with a group", Options{Group: ptr.To(2000)}, map[string]string{
			"..data": "-> GEN", "a": "-> ..data/a", "tls": "-> ..data/tls", "own": "-> ..data/own", "empty": "-> ..data/empty",
			"GEN": "2755 0:2000", "GEN/a": "644 0:2000 A", "GEN/tls": "2755 0:2000", "GEN/tls/deep": "2755 0:2000", "GEN/tls/deep/key": "440 0:2000 K", "GEN/tls/cert": "777 0:2000 C",
			"GEN/own": "440 1000:2000 O", "GEN/empty": "640 0:2000 ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, unix.Chown(dir, 0, 3000))
			must(t, unix.Chmod(dir, 0o2777)) // what is made in it would get the group 3000
			files := map[string]File{
				"a": file("A"), "tls/deep/key": {Data: []byte("K"), Mode: 0o400}, "tls/cert": {Data: []byte("C"), Mode: 0o777 | unix.S_ISUID},
				"own": {Data: []byte("O"), Mode: 0, UID: ptr.To[int64](1000)}, "empty": {Mode: 0o640},
			}
			write(t, dir, files, c.o, true)
			check(t, dir, c.want)
			write(t, dir, files, c.o, false)
			check(t, dir, c.want)
		})
	}
}

func TestNothingAtAll(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, nil, Options{}, true)
	check(t, dir, map[string]string{"..data": "-> GEN", "GEN": "755 0:0"})
	write(t, dir, map[string]File{}, Options{}, false)
}

// marks are inode numbers and times of change, which tell whether anything was written.
func marks(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		all[path] = fmt.Sprint(st.Ino, st.Ctim)
		return err
	}))
	return all
}

func TestNothingIsWrittenIfNothingChanged(t *testing.T) {
	dir := t.TempDir()
	files := map[string]File{"a": file("A"), "b/c": file(strings.Repeat("C", 200<<10))}
	write(t, dir, files, Options{}, true)
	before := marks(t, dir)
	write(t, dir, files, Options{}, false)
	if after := marks(t, dir); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

func TestUpdates(t *testing.T) {
	dir := t.TempDir()
	base := map[string]File{"a": file("A"), "b/c": file("C")}
	for _, next := range []map[string]File{
		base,
		{"a": file("B"), "b/c": file("C")}, // a byte
		{"a": {Data: []byte("B"), Mode: 0o600}, "b/c": file("C")},                      // a mode
		{"a": {Data: []byte("B"), Mode: 0o600, UID: ptr.To[int64](7)}, "b": file("b")}, // an owner, and a directory that becomes a file
		{"b": file("b")},
		{"a/x": file("x"), "b": file("b")},
		{},
		base,
	} {
		write(t, dir, next, Options{}, true)
		want := map[string]string{"..data": "-> GEN", "GEN": "755 0:0"}
		for path, f := range next {
			first, _, nested := strings.Cut(path, "/")
			want[first] = "-> ..data/" + first
			if nested {
				want["GEN/"+first] = "755 0:0"
			}
			want["GEN/"+path] = fmt.Sprintf("%o %d:0 %s", f.Mode, ptr.Deref(f.UID, 0), f.Data)
		}
		check(t, dir, want)
	}
	write(t, dir, base, Options{Group: ptr.To(5)}, true) // a group
}

func TestAWriteThatFailsChangesNothing(t *testing.T) {
	small := t.TempDir()
	must(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	write(t, small, map[string]File{"a": file("A"), "gone": file("G")}, Options{}, true)
	before := marks(t, small)
	delete(before, small) // the directory itself: something was made in it, and removed

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		files map[string]File
		want  error
	}{
		"the disk is full":      {t.Context(), map[string]File{"a": file("B"), "b/c": file(strings.Repeat("C", 100<<10))}, unix.ENOSPC},
		"there is no time left": {ended, map[string]File{"a": file("B")}, context.Canceled},
		"a wrong path":          {t.Context(), map[string]File{"a": file("B"), "../b": file("B")}, nil},
	} {
		changed, err := Write(c.ctx, small, c.files, Options{})
		if changed || err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %t, %v", name, changed, err)
		}
		after := marks(t, small)
		delete(after, small)
		if !maps.Equal(before, after) {
			t.Errorf("%s: before %v\nafter %v", name, before, after)
		}
	}
	write(t, small, map[string]File{"a": file("B")}, Options{}, true)
}

// TestHeld: what is held of an old generation stays, and nothing else of it, until it isn't held any more.
func TestHeld(t *testing.T) {
	files := func(text string) map[string]File {
		return map[string]File{"a": file(text), "b": file(text), "dir/c": file(text), "dir/sub/d": file(text), "dir/sub/e": file(text)}
	}
	for held, want := range map[string][]string{
		"a": {"a"}, "dir/sub/d": {"dir", "dir/sub", "dir/sub/d"}, "dir/sub": {"dir", "dir/sub", "dir/sub/d", "dir/sub/e"}, "nothing": nil,
	} {
		t.Run(strings.ReplaceAll(held, "/", "-"), func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, files("one"), Options{}, true)
			old, err := os.Readlink(filepath.Join(dir, dataLink))
			must(t, err)
			var st unix.Stat_t
			_ = unix.Stat(filepath.Join(dir, held), &st) // "nothing" isn't there
			holding := Options{Held: func(device, inode uint64) bool { return device == st.Dev && inode == st.Ino }}
			for i := range 3 {
				write(t, dir, files(fmt.Sprint(i)), holding, true)
			}
			f, err := os.Open(dir)
			must(t, err)
			defer f.Close()
			if whole, err := Recover(t.Context(), f, holding); !whole || err != nil {
				t.Errorf("recovered: %t, %v", whole, err)
			}
			var left []string
			_ = filepath.WalkDir(filepath.Join(dir, old), func(path string, _ fs.DirEntry, err error) error {
				if name := strings.TrimPrefix(path, filepath.Join(dir, old)+"/"); err == nil && name != path {
					left = append(left, name)
				}
				return nil
			})
			if !slices.Equal(left, want) {
				t.Errorf("%v is left of the first generation, want %v", left, want)
			}
			generations := func() int {
				all, err := filepath.Glob(filepath.Join(dir, "..2*"))
				must(t, err)
				return len(all)
			}
			if n := generations(); n > 2 {
				t.Errorf("there are %d generations", n)
			}
			write(t, dir, files("last"), Options{}, true)
			if n := generations(); n != 1 {
				t.Errorf("there are %d generations when nothing is held", n)
			}
		})
	}
}

func TestRecover(t *testing.T) {
	dir := t.TempDir()
	again := func() (bool, error) {
		f, err := os.Open(dir)
		must(t, err)
		defer f.Close()
		return Recover(t.Context(), f, Options{})
	}
	if whole, err := again(); whole || err != nil {
		t.Errorf("an empty directory: %t, %v", whole, err)
	}
	write(t, dir, map[string]File{"a": file("A"), "b/c": file("C")}, Options{Group: ptr.To(7)}, true)
	want := listing(t, dir)
	before := marks(t, dir)
	if whole, err := again(); !whole || err != nil {
		t.Errorf("%t, %v", whole, err)
	}
	if !maps.Equal(before, marks(t, dir)) {
		t.Error("something was written")
	}
	must(t, os.Remove(filepath.Join(dir, "a")))
	must(t, os.Symlink("..data/old", filepath.Join(dir, "old")))
	must(t, os.MkdirAll(filepath.Join(dir, "..2020_01_01_00_00_00.1", "x"), 0o700))
	if whole, err := again(); !whole || err != nil {
		t.Errorf("%t, %v", whole, err)
	}
	check(t, dir, want)
	must(t, os.Remove(filepath.Join(dir, "..data")))
	if whole, err := again(); whole || err != nil {
		t.Errorf("without ..data: %t, %v", whole, err)
	}
}
