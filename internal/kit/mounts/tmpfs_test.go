package mounts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// place is a directory that isn't there yet, nor is its parent.
func place(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kubernetes.io~secret", "pass")
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	})
	return dir
}

func mounts(t *testing.T, dir string) []*mountinfo.Info {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	must(t, err)
	return list
}

func TestModeGroupAndSize(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		o         TmpfsOptions
		mode, gid uint32
		size      int64
	}{
		{TmpfsOptions{Mode: 0o1777, Size: 1 << 20}, 0o1777, 0, 1 << 20},
		{TmpfsOptions{Mode: 0o3770, GID: ptr.To(2000), Size: 4097}, 0o3770, 2000, 8192},
		{TmpfsOptions{Mode: 0o700}, 0o700, 0, 0},
	} {
		dir := place(t)
		must(t, MountTmpfs(dir, c.o))
		var st unix.Stat_t
		must(t, unix.Lstat(dir, &st))
		if st.Mode != unix.S_IFDIR|c.mode || st.Uid != 0 || st.Gid != c.gid {
			t.Errorf("%+v: mode %o, user %d, group %d", c.o, st.Mode, st.Uid, st.Gid)
		}
		var f unix.Statfs_t
		must(t, unix.Statfs(dir, &f))
		if got := int64(f.Blocks) * f.Bsize; f.Type != unix.TMPFS_MAGIC || c.size > 0 && got != c.size || c.size == 0 && got < 1<<20 {
			t.Errorf("%+v: type %x, size %d", c.o, f.Type, got)
		}
	}
}

// Where the kernel knows noswap (it is in the options of those that have it), it is set.
func TestNoSwap(t *testing.T) {
	probe := filepath.Join(t.TempDir(), "probe")
	must(t, os.Mkdir(probe, 0o700))
	if err := unix.Mount("tmpfs", probe, "tmpfs", 0, "noswap"); err != nil {
		t.Skipf("this kernel has no noswap: %v", err)
	}
	must(t, unix.Unmount(probe, 0))
	dir := place(t)
	must(t, MountTmpfs(dir, TmpfsOptions{Mode: 0o700}))
	if list := mounts(t, dir); len(list) != 1 || !strings.Contains(list[0].VFSOptions, "noswap") {
		t.Errorf("%+v", list)
	}
}

func TestMountingTwiceMountsOnce(t *testing.T) {
	dir := place(t)
	must(t, MountTmpfs(dir, TmpfsOptions{Mode: 0o1777, Size: 1 << 20}))
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	must(t, MountTmpfs(dir, TmpfsOptions{Mode: 0o700, Size: 2 << 20}))
	if list := mounts(t, dir); len(list) != 1 {
		t.Errorf("%d mounts", len(list))
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}

func TestOpenIsForWhatIsMounted(t *testing.T) {
	dir := place(t)
	if _, err := OpenTmpfs(dir); !errors.Is(err, ErrNotMounted) {
		t.Errorf("no directory: %v", err)
	}
	must(t, os.MkdirAll(dir, 0o750)) // as after a reboot
	if _, err := OpenTmpfs(dir); !errors.Is(err, ErrNotMounted) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory alone: %v", err)
	}
	must(t, MountTmpfs(dir, TmpfsOptions{Mode: 0o700}))
	f, err := OpenTmpfs(dir)
	must(t, err)
	defer f.Close()
	inner := filepath.Join(dir, "inner")
	must(t, os.Mkdir(inner, 0o700))
	if _, err := OpenTmpfs(inner); !errors.Is(err, ErrNotMounted) {
		t.Errorf("a directory in a tmpfs: %v", err)
	}
	// What was opened stays what it is.
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	must(t, unix.Mkdirat(int(f.Fd()), "later", 0o700))
	if _, err := os.Lstat(filepath.Join(dir, "later")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made on disk: %v", err)
	}
}

func TestLinksAndOtherMountsAreRefused(t *testing.T) {
	elsewhere := t.TempDir()
	dir := place(t)
	must(t, os.MkdirAll(filepath.Dir(dir), 0o750))
	must(t, os.Symlink(elsewhere, dir))
	if err := MountTmpfs(dir, TmpfsOptions{Mode: 0o700}); err == nil {
		t.Error("a link was followed")
	}
	if len(mounts(t, elsewhere)) != 0 {
		t.Error("mounted where a link leads")
	}
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o750))
	must(t, unix.Mount("proc", dir, "proc", 0, ""))
	for _, err := range []error{MountTmpfs(dir, TmpfsOptions{Mode: 0o700}), func() error { _, err := OpenTmpfs(dir); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "no tmpfs") {
			t.Errorf("something else is mounted: %v", err)
		}
	}
	if len(mounts(t, dir)) != 1 {
		t.Errorf("%+v", mounts(t, dir))
	}
}

func TestAFileInTheWay(t *testing.T) {
	dir := place(t)
	must(t, os.MkdirAll(filepath.Dir(dir), 0o750))
	must(t, os.WriteFile(dir, nil, 0o600))
	if err := MountTmpfs(dir, TmpfsOptions{Mode: 0o700}); err == nil {
		t.Error("mounted over a file")
	}
}
