package csi

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Only a file system that is mounted as a whole, and isn't one around the place, is a device that must not be mounted
// elsewhere.
func TestDeviceAt(t *testing.T) {
	top := t.TempDir()
	mount := func(source, name, kind string, flags uintptr) {
		t.Helper()
		path := filepath.Join(top, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, path, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	mount("tmpfs", "around", "tmpfs", 0)
	mount("tmpfs", "around/device", "tmpfs", 0)
	mount("tmpfs", "twice", "tmpfs", 0)
	mount(filepath.Join(top, "twice"), "twice", "", unix.MS_BIND)
	for _, dir := range []string{"around/dir", "around/device/dir"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mount(filepath.Join(top, "around/dir"), "around/bound", "", unix.MS_BIND)
	mount(filepath.Join(top, "around"), "around/itself", "", unix.MS_BIND)
	mount(filepath.Join(top, "around/device/dir"), "around/directory", "", unix.MS_BIND)
	if err := os.Symlink(filepath.Join(top, "around"), filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	for at, is := range map[string]bool{"around/device": true, "link/device": true, "twice": true, "around/bound": false,
		"around/itself": false, "around/directory": false} {
		device, err := deviceAt(filepath.Join(top, filepath.Dir(at)), filepath.Base(at))
		if err != nil || (device != "") != is {
			t.Errorf("%s: %q, %v", at, device, err)
		}
		if other, err := mountOf(device); (other != "") != is || err != nil {
			t.Errorf("%s is mounted at %q, %v", at, other, err)
		}
	}
}
