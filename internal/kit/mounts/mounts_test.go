package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mount(t testing.TB, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	must(t, os.MkdirAll(target, 0o755))
	must(t, unix.Mount(source, target, kind, flags, options))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }) // mostly gone by then
}

func TestTheListIsInTheOrderInWhichMountsCanBeTakenOff(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a", "odd \n\t\\name")
	mount(t, "first", filepath.Join(dir, "a"), "tmpfs", 0, "size=64k")
	mount(t, "second", odd, "tmpfs", unix.MS_RDONLY, "")
	mount(t, "third", filepath.Join(dir, "stacked"), "tmpfs", 0, "")
	mount(t, "fourth", filepath.Join(dir, "stacked"), "tmpfs", 0, "")
	mount(t, "fifth", filepath.Join(dir, "stacked"), "tmpfs", 0, "")
	mount(t, "beside", dir+"beside", "tmpfs", 0, "")
	t.Cleanup(func() { _ = os.RemoveAll(dir + "beside") })
	must(t, os.MkdirAll(filepath.Join(dir, "source", "part"), 0o755))
	mount(t, filepath.Join(dir, "source", "part"), filepath.Join(dir, "bound"), "", unix.MS_BIND, "")
	list, err := List(dir)
	must(t, err)
	var sources []string
	byPoint := make(map[string]Entry)
	for _, m := range list {
		sources = append(sources, m.Source)
		byPoint[m.Point] = m
		must(t, unix.Unmount(m.Point, unix.UMOUNT_NOFOLLOW))
	}
	if len(list) != 6 || sources[0] != "second" || sources[1] != "fifth" || sources[2] != "fourth" || sources[3] != "third" {
		t.Errorf("listed %q", sources)
	}
	if m := byPoint[odd]; m.FSType != "tmpfs" || !m.ReadOnly || m.Root != "/" || m.Parent != byPoint[filepath.Join(dir, "a")].ID || m.ID == 0 || m.Minor == 0 {
		t.Errorf("%+v", m)
	}
	if m := byPoint[filepath.Join(dir, "bound")]; filepath.Base(filepath.Dir(m.Root)) != "source" || m.ReadOnly {
		t.Errorf("%+v", m)
	}
	if left, err := List(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if beside, err := List(dir + "beside"); err != nil || len(beside) != 1 {
		t.Errorf("beside %v, %v", beside, err)
	}
}

func TestContaining(t *testing.T) {
	dir := t.TempDir()
	first, second, link := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "link")
	mount(t, "one", first, "tmpfs", 0, "")
	mount(t, "two", second, "tmpfs", 0, "")
	inner := filepath.Join(first, "inner")
	must(t, os.Mkdir(inner, 0o755))
	must(t, os.Symlink(inner, link))
	bound := filepath.Join(dir, "bound")
	mount(t, inner, bound, "", unix.MS_BIND, "")
	of := func(path string) Entry {
		t.Helper()
		m, err := Containing(path)
		must(t, err)
		return m
	}
	one, two := of(first), of(second)
	if one.Source != "one" || one.Point != first || two.Source != "two" || one.Major == two.Major && one.Minor == two.Minor {
		t.Errorf("two file systems: %+v, %+v", one, two)
	}
	for _, path := range []string{inner, link, bound} {
		if m := of(path); m.Major != one.Major || m.Minor != one.Minor || (m.Point == first) != (path != bound) {
			t.Errorf("%s is in %+v", path, m)
		}
	}
	mount(t, "top", first, "tmpfs", 0, "")
	if m := of(first); m.Source != "top" {
		t.Errorf("of two mounts at one place: %+v", m)
	}
	if m := of("/proc"); m.Source != "proc" {
		t.Errorf("/proc is in %+v", m)
	}
	if m, err := Containing(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a missing path: %+v, %v", m, err)
	}
}

func TestUnmountFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	mounted := filepath.Join(dir, "mounted")
	mount(t, "tmpfs", mounted, "tmpfs", 0, "")
	must(t, os.Symlink("mounted", filepath.Join(dir, "link")))
	parent, err := os.Open(dir)
	must(t, err)
	defer parent.Close()
	for _, name := range []string{"link", "link/", "mounted/", "mounted/.", "./mounted", "", ".", "..", "../" + filepath.Base(dir) + "/mounted"} {
		if err := Unmount(parent, name, 0); err == nil {
			t.Fatalf("%q was unmounted", name)
		}
	}
	held, err := os.Create(filepath.Join(mounted, "held"))
	must(t, err)
	if err := Unmount(parent, "mounted", 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: %v", err)
	}
	must(t, held.Close())
	must(t, Unmount(parent, "mounted", 0))
	if err := Unmount(parent, "mounted", 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("not mounted: %v", err)
	}
	if err := Unmount(parent, "none", 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("not there: %v", err)
	}
}
