package atomicwriter

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What others did to the files, the agent puts right; nothing outside is touched.
func TestWhatOthersChangedIsPutRight(t *testing.T) {
	files := map[string]File{"a": file("A"), "b/c": file("C")}
	for name, tamper := range map[string]func(dir string) error{
		"bytes":               func(dir string) error { return os.WriteFile(dir+"/a", []byte("X"), 0) },
		"more bytes":          func(dir string) error { return os.WriteFile(dir+"/b/c", []byte("CC"), 0) },
		"a mode":              func(dir string) error { return os.Chmod(dir+"/b/c", 0o600) },
		"a directory's mode":  func(dir string) error { return os.Chmod(dir+"/b", 0o700) },
		"an owner":            func(dir string) error { return os.Chown(dir+"/a", 7, -1) },
		"a directory's group": func(dir string) error { return os.Chown(dir+"/..data", -1, 7) },
		"a file removed":      func(dir string) error { return os.Remove(dir + "/b/c") },
		"a file added":        func(dir string) error { return os.WriteFile(dir+"/b/x", nil, 0o644) },
		"a pipe for a file":   func(dir string) error { return errors.Join(os.Remove(dir+"/b/c"), unix.Mkfifo(dir+"/b/c", 0o644)) },
		"a link for a file": func(dir string) error {
			return errors.Join(os.Remove(dir+"/b/c"), os.Symlink("../../../precious", dir+"/b/c"))
		},
		"a directory for a file": func(dir string) error { return errors.Join(os.Remove(dir+"/b/c"), os.Mkdir(dir+"/b/c", 0o755)) },
		"a file for a directory": func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/..data/b"), os.WriteFile(dir+"/..data/b", nil, 0o755))
		},
		"a name removed":        func(dir string) error { return os.Remove(dir + "/a") },
		"a name that leads out": func(dir string) error { return errors.Join(os.Remove(dir+"/a"), os.Symlink("../precious", dir+"/a")) },
		"a file for a name":     func(dir string) error { return errors.Join(os.Remove(dir+"/a"), os.WriteFile(dir+"/a", nil, 0o600)) },
		"no ..data":             func(dir string) error { return os.Remove(dir + "/..data") },
		"..data leads out":      func(dir string) error { return errors.Join(os.Remove(dir+"/..data"), os.Symlink("..", dir+"/..data")) },
		"..data leads far out": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.Symlink("../outside", dir+"/..data"))
		},
		"..data leads nowhere": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.Symlink("..gone", dir+"/..data"))
		},
		"..data is a full directory": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.MkdirAll(dir+"/..data/a/b", 0o755))
		},
		"..data is a file": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.WriteFile(dir+"/..data", nil, 0o644))
		},
		"a directory in the way of the swap": func(dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.MkdirAll(dir+"/..data_tmp/a/b", 0o755), os.Symlink("..", dir+"/..data"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "volume")
			must(t, os.MkdirAll(filepath.Join(parent, "outside", "b"), 0o755))
			// It looks like the volume, so that whoever is led there may take it for one.
			must(t, os.WriteFile(filepath.Join(parent, "outside", "a"), []byte("A"), 0o644))
			must(t, os.WriteFile(filepath.Join(parent, "outside", "b", "c"), []byte("C"), 0o644))
			must(t, os.WriteFile(filepath.Join(parent, "precious"), []byte("C"), 0o644))
			must(t, os.Mkdir(dir, 0o755))
			write(t, dir, files, Options{}, true)
			want := listing(t, dir)
			must(t, tamper(dir))
			if maps.Equal(want, listing(t, dir)) {
				t.Fatal("nothing was changed")
			}
			outside := marks(t, filepath.Join(parent, "outside"))
			write(t, dir, files, Options{}, true)
			check(t, dir, want)
			write(t, dir, files, Options{}, false)
			if data, err := os.ReadFile(filepath.Join(parent, "precious")); err != nil || string(data) != "C" {
				t.Errorf("the file outside is now %q, %v", data, err)
			}
			if !maps.Equal(outside, marks(t, filepath.Join(parent, "outside"))) {
				t.Error("something outside was touched")
			}
		})
	}
}

func TestLeftoversGo(t *testing.T) {
	dir := t.TempDir()
	files := map[string]File{"a": file("A")}
	write(t, dir, files, Options{}, true)
	want := listing(t, dir)
	must(t, os.MkdirAll(filepath.Join(dir, "..2020_01_01_00_00_00.123", "deep", "er"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "..2020_01_01_00_00_00.123", "deep", "secret"), []byte("s"), 0o600))
	must(t, os.Symlink("..2020_01_01_00_00_00.123", filepath.Join(dir, "..data_tmp")))
	must(t, os.WriteFile(filepath.Join(dir, "..tmp"), nil, 0o600))
	must(t, os.Symlink("..data/old", filepath.Join(dir, "old")))
	write(t, dir, files, Options{}, false)
	check(t, dir, want)
}

// A runtime makes directories where something is mounted in the volume (an emptyDir at
// /etc/app/cache in a ConfigMap at /etc/app). They stay, and are no reason to write anything.
func TestMountPointsOfContainersStay(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]File{"a": file("A"), "b/c": file("C")}, Options{}, true)
	must(t, os.Mkdir(filepath.Join(dir, "cache"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "b", "cache"), 0o755))
	must(t, os.Symlink("elsewhere", filepath.Join(dir, "link")))
	before := marks(t, dir)
	write(t, dir, map[string]File{"a": file("A"), "b/c": file("C")}, Options{}, false)
	if after := marks(t, dir); !maps.Equal(before, after) {
		t.Error("something was written")
	}
	write(t, dir, map[string]File{"a": file("B")}, Options{}, true)
	check(t, dir, map[string]string{"..data": "-> GEN", "a": "-> ..data/a", "cache": "755 0:0", "link": "-> elsewhere", "GEN": "755 0:0", "GEN/a": "644 0:0 B"})

	// One that has the name of a file is told of, and the rest is done.
	changed, err := Write(t.Context(), dir, map[string]File{"a": file("C"), "cache": file("x"), "z": file("Z")}, Options{})
	if !changed || err == nil || !strings.Contains(err.Error(), `a directory called "cache"`) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%t, %v", changed, err)
	}
	if _, again := Write(t.Context(), dir, map[string]File{"a": file("C"), "cache": file("x"), "z": file("Z")}, Options{}); again == nil || again.Error() != err.Error() {
		t.Errorf("the next time it says %v", again)
	}
	for name, want := range map[string]string{"a": "C", "z": "Z"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if old, err := filepath.Glob(filepath.Join(dir, "..2*")); err != nil || len(old) != 1 {
		t.Errorf("the old files are there: %q, %v", old, err)
	}
}

func TestTheDirItselfIsNoLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	if _, err := Write(t.Context(), link, map[string]File{"a": file("A")}, Options{}); err == nil {
		t.Error("the link was followed")
	}
	check(t, dir, nil)
	if _, err := Write(t.Context(), filepath.Join(dir, "missing"), nil, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
