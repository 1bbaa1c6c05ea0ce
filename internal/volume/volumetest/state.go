package volumetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// mounts describes the mounts at and below dir.
func mounts(t *testing.T, dir string) []string {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("mount %d on %d at %s: %s %s %s", m.ID, m.Parent, m.Mountpoint, m.FSType, m.Root,
			m.Options))
	}
	return out
}

// unmountAll removes all mounts at and below dir, like a reboot.
func unmountAll(t *testing.T, dir string) {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	for i := range list {
		// Later mounts may be on top of earlier ones.
		if err := unix.Unmount(list[len(list)-1-i].Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}

// state describes all mounts and files below dir: their identity, attributes and times of the last change.
func state(t *testing.T, dir string) []string {
	t.Helper()
	out := mounts(t, dir)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		out = append(out, fmt.Sprintf("%s: inode %d of device %d, mode %o, owner %d:%d, %d bytes, changed %d.%d, %d.%d",
			path, st.Ino, st.Dev, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec,
			st.Ctim.Nsec))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unchanged checks that the result of state is the same as before.
func unchanged(t *testing.T, dir string, before []string) {
	t.Helper()
	if diff := cmp.Diff(before, state(t, dir)); diff != "" {
		t.Errorf("what was ready was touched (-before +after):\n%s", diff)
	}
}

func difference(want, got map[string]string) string {
	if len(want) == 0 && len(got) == 0 {
		return ""
	}
	return cmp.Diff(want, got)
}

// read reads all files of a volume like a careful program: if there is a link ..data, which is replaced by one rename,
// it reads all files from the directory that the link referred to first. If the link has changed meanwhile, it starts
// again.
func read(path string) (map[string]string, error) {
	for {
		got, err := readOnce(path)
		if err == nil || !errors.Is(err, errExchanged) {
			return got, err
		}
	}
}

var errExchanged = errors.New("what was read has been exchanged")

func readOnce(path string) (map[string]string, error) {
	top := path
	data, err := os.OpenFile(filepath.Join(path, "..data"), unix.O_DIRECTORY, 0)
	if err == nil {
		defer data.Close()
		top = fmt.Sprintf("/proc/self/fd/%d/", data.Fd())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	got, rerr := readTree(top)
	if data == nil {
		return got, rerr
	}
	// An old directory may be removed while it is read.
	was, err := data.Stat()
	if err != nil {
		return nil, err
	}
	if is, err := os.Stat(filepath.Join(path, "..data")); err != nil || !os.SameFile(was, is) {
		return nil, errExchanged
	}
	return got, rerr
}

func readTree(top string) (map[string]string, error) {
	got := map[string]string{}
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), "..") {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		got[rel] = string(content)
		return err
	})
	return got, err
}

// owner describes the owner and the mode of a volume's top directory.
func owner(t *testing.T, m volume.Mounted) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(m.Path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d, mode %o", st.Uid, st.Gid, st.Mode)
}

// versions lists the directories below dir in which a writer keeps versions of the content: their names begin with
// "..", and they aren't symbolic links.
func versions(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") && e.Type()&fs.ModeSymlink == 0 {
			names = append(names, e.Name())
		}
	}
	return names
}
