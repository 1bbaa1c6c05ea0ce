package atomicwriter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// TestMountPointsAreMade mounts in a volume that is read-only for whoever mounts, and updates it.
func TestMountPointsAreMade(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for name, c := range map[string]struct {
		o         Options
		directory string
	}{
		"without a group": {Options{MountPoints: []string{"cache", "deep/er", "deep"}}, "755 0:0"},
		"with a group":    {Options{MountPoints: []string{"cache", "deep/er"}, Group: ptr.To(2000)}, "2755 0:2000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, seen := t.TempDir(), t.TempDir()
			files := func(text string) map[string]File { return map[string]File{"b": file(text), "conf/a": file(text)} }
			// A name that was a file's before.
			write(t, dir, map[string]File{"cache": file("x")}, Options{}, true)
			write(t, dir, files("1"), c.o, true)
			must(t, unix.Mount(dir, seen, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = unix.Unmount(seen, unix.MNT_DETACH) })
			must(t, unix.Mount("", seen, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			for _, at := range []string{"cache", "deep/er"} {
				must(t, unix.Mount("tmpfs", filepath.Join(seen, at), "tmpfs", 0, "size=1m"))
				t.Cleanup(func() { _ = unix.Unmount(filepath.Join(seen, at), unix.MNT_DETACH) })
				must(t, os.WriteFile(filepath.Join(seen, at, "kept"), nil, 0o600))
			}
			write(t, dir, files("1"), c.o, false)
			write(t, dir, files("2"), c.o, true)
			for _, at := range []string{"cache", "deep/er"} {
				if _, err := os.Stat(filepath.Join(seen, at, "kept")); err != nil {
					t.Errorf("an update took away what is mounted at %s: %v", at, err)
				}
			}
			for _, path := range []string{"b", "conf/a"} {
				if data, err := os.ReadFile(filepath.Join(seen, path)); err != nil || string(data) != "2" {
					t.Errorf("%s: %q, %v", path, data, err)
				}
			}
			got := listing(t, dir)
			for _, path := range []string{"cache", "deep", "deep/er"} {
				if got[path] != c.directory {
					t.Errorf("%s is %q, want %q", path, got[path], c.directory)
				}
			}
		})
	}
}

// What a container mounts may reach the node, too (API: MountPropagationBidirectional): it is another volume, which keeps
// its mode and its owner.
func TestWhatIsMountedAtAMountPointIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	o := Options{MountPoints: []string{"cache", "deep/er", "cache/in"}}
	files := func(text string) map[string]File { return map[string]File{"a": file(text)} }
	write(t, dir, files("1"), o, true)
	for _, at := range o.MountPoints[:2] {
		at = filepath.Join(dir, at)
		must(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m,mode=1777,gid=7"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	write(t, dir, files("1"), o, false)
	write(t, dir, files("2"), o, true)
	got := listing(t, dir)
	for path, want := range map[string]string{"cache": "1777 0:7", "deep/er": "1777 0:7", "cache/in": "", "deep": "755 0:0"} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
}

// A mount point that an update would take away is refused, before anything is written.
func TestMountPointsThatCannotStay(t *testing.T) {
	for _, path := range []string{"conf/cache", "b/cache", "conf/a/b", "conf/a", "conf", "b", "..data", "..cache", ".."} {
		dir := t.TempDir()
		files := map[string]File{"b": file("1"), "conf/a": file("1")}
		o := Options{MountPoints: []string{"good", path}}
		changed, err := Write(t.Context(), dir, files, o)
		if changed || err == nil || !strings.Contains(err.Error(), "a container mounts something in the volume") || !strings.Contains(err.Error(), `"`+path+`"`) {
			t.Errorf("%s: %t, %v", path, changed, err)
		}
		check(t, dir, nil)
		// Neither does an update come to that.
		write(t, dir, map[string]File{"d": file("1")}, Options{MountPoints: []string{"good", "conf/cache"}}, true)
		before := marks(t, dir)
		if changed, err := Write(t.Context(), dir, files, Options{MountPoints: []string{"good", "conf/cache"}}); changed || err == nil {
			t.Errorf("%t, %v", changed, err)
		}
		if after := marks(t, dir); len(after) != len(before) {
			t.Errorf("something was written: %v", after)
		}
	}
}

// A link in the place of a mount point isn't followed.
func TestMountPointsAreMadeInTheVolumeOnly(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "volume")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Mkdir(filepath.Join(parent, "outside"), 0o755))
	must(t, os.Symlink("../outside", filepath.Join(dir, "deep")))
	if _, err := Write(t.Context(), dir, map[string]File{"a": file("A")}, Options{MountPoints: []string{"deep/er"}}); err == nil || !strings.Contains(err.Error(), `mount point "deep/er"`) {
		t.Errorf("%v", err)
	}
	check(t, filepath.Join(parent, "outside"), nil)
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "A" {
		t.Errorf("%q, %v", data, err)
	}
}
