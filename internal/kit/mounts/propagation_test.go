package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// privately returns a directory whose mount is private, as "/" is without systemd. Mounts below it end with the test.
func privately(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	mount(t, "tmpfs", top, "tmpfs", 0, "")
	must(t, unix.Mount("", top, "", unix.MS_PRIVATE, ""))
	dir := filepath.Join(top, "root")
	must(t, os.Mkdir(dir, 0o751))
	return dir
}

// inContainer calls do in a mount namespace of its own, which a container with Bidirectional mounts shares with the host.
func inContainer(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	must(t, <-done)
}

func points(t *testing.T, dir string) (all []string) {
	t.Helper()
	list, err := List(dir)
	must(t, err)
	for _, m := range list {
		all = append(all, strings.TrimPrefix(m.Point, dir))
	}
	return all
}

// TestShare: a mount of a container reaches the host. Further starts add no mount, and a link leads to the same directory.
func TestShare(t *testing.T) {
	dir := privately(t)
	must(t, os.MkdirAll(filepath.Join(dir, "pods/uid"), 0o750))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	must(t, Share(dir))
	must(t, Share(dir))
	must(t, Share(link))
	if all := points(t, dir); len(all) != 1 || all[0] != "" {
		t.Fatalf("mounts: %q", all)
	}
	if m, err := Containing(filepath.Join(dir, "pods")); err != nil || m.Point != filepath.Dir(dir) {
		t.Errorf("pods are in %+v, %v", m, err) // messages name the file system, as without the bind
	}
	inContainer(t, func() error { return unix.Mount("tmpfs", filepath.Join(dir, "pods/uid"), "tmpfs", 0, "") })
	if all := points(t, dir); len(all) != 2 || all[0] != "/pods/uid" {
		t.Fatalf("mounts: %q", all)
	}
	must(t, Share(dir)) // beside the mount
	must(t, unix.Unmount(filepath.Join(dir, "pods/uid"), 0))
	must(t, os.RemoveAll(filepath.Join(dir, "pods")))
	must(t, Unshare(link))
	must(t, Unshare(dir))
	if all := points(t, dir); len(all) != 0 {
		t.Errorf("mounts: %q", all)
	}
	must(t, os.Remove(dir))
	must(t, Unshare(dir))
	if err := Share(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestShareBindsOnlyWhereItHasTo: below a shared mount nothing is done, a mount of its own is made shared, and mounts below are
// never hidden.
func TestShareBindsOnlyWhereItHasTo(t *testing.T) {
	dir := privately(t)
	pod := filepath.Join(dir, "pods")
	mount(t, "tmpfs", pod, "tmpfs", 0, "")
	remedy := "`mount --bind " + dir + " " + dir + " && mount --make-rshared " + dir + "`"
	if err := Share(dir); err == nil || !strings.Contains(err.Error(), "something is mounted in it, at "+pod) ||
		!strings.Contains(err.Error(), remedy) {
		t.Errorf("got %v", err)
	}
	if all := points(t, dir); len(all) != 1 {
		t.Errorf("mounts: %q", all)
	}
	shared := func(path string) bool {
		found, err := On(path)
		must(t, err)
		return found[0].Shared
	}
	must(t, Share(pod))
	if all := points(t, dir); len(all) != 1 || !shared(pod) || shared(dir) {
		t.Errorf("mounts: %q, shared: %v, %v", all, shared(pod), shared(dir))
	}
	must(t, Unshare(pod)) // which is no bind
	must(t, Share(filepath.Dir(dir)))
	must(t, Share(dir))
	if all := points(t, dir); len(all) != 1 || !shared(dir) {
		t.Errorf("mounts: %q, shared: %v", all, shared(dir))
	}
}

// TestUnshareLeavesOtherMounts: those of another directory or with another purpose aren't ours.
func TestUnshareLeavesOtherMounts(t *testing.T) {
	dir := privately(t)
	mount(t, t.TempDir(), dir, "", unix.MS_BIND, "")
	must(t, Unshare(dir))
	if all := points(t, dir); len(all) != 1 {
		t.Errorf("mounts: %q", all)
	}
	mount(t, dir, dir, "", unix.MS_BIND, "")
	mount(t, dir, dir, "", unix.MS_BIND, "")
	must(t, Unshare(dir))
	if all := points(t, dir); len(all) != 1 {
		t.Errorf("mounts: %q", all)
	}
}
