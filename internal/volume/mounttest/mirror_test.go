package mounttest_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// TestMirror: a mirror is an ordinary file system, but for the writes that a test has fail.
func TestMirror(t *testing.T) {
	source, dir := t.TempDir(), t.TempDir()
	if err := unix.Mount("mounttest", source, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(source, unix.MNT_DETACH) })
	m := mounttest.MountMirror(t, source, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	long := strings.Repeat("x", 300<<10)
	lock, err := os.OpenFile(at("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := errors.Join(os.MkdirAll(at("a/b"), 0o750), os.WriteFile(at("a/b/long"), []byte(long), 0o640),
		os.Rename(at("a/b"), at("a/c")), os.Symlink("c", at("a/link")), os.Link(at("a/c/long"), at("other")),
		os.Chmod(at("other"), 0o600), os.Remove(at("a/c/long")),
		unix.Fallocate(int(lock.Fd()), 0, 0, 4096), unix.Flock(int(lock.Fd()), unix.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(at("other")); err != nil || string(text) != long {
		t.Errorf("read %d bytes, %v", len(text), err)
	}
	for _, root := range []string{source, dir} {
		var list []string
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			list = append(list, name)
			return err
		})
		want := []string{".", "a", "a/c", "a/link", "lock", "other", "socket"}
		if err != nil || !slices.Equal(list, want) {
			t.Errorf("%s has %q, %v", root, list, err)
		}
	}
	if link, err := os.Readlink(at("a/link")); link != "c" {
		t.Errorf("link to %q, %v", link, err)
	}
	if info, err := os.Stat(at("other")); err != nil || info.Mode() != 0o600 || info.Size() != int64(len(long)) {
		t.Errorf("%+v, %v", info, err)
	}
	for _, errno := range []unix.Errno{unix.EIO, unix.EROFS, unix.EDQUOT} {
		m.Fail(errno)
		_, written := lock.WriteString("x")
		for what, err := range map[string]error{"write": written,
			"make": os.WriteFile(at("new"), nil, 0o600), "mkdir": os.Mkdir(at("dir"), 0o755)} {
			if !errors.Is(err, errno) {
				t.Errorf("%s: %v, want %v", what, err, errno)
			}
		}
		want := error(errno)
		if errno == unix.EDQUOT {
			want = nil // a change of the mode takes no room
		}
		if err := os.Chmod(at("other"), 0o600); !errors.Is(err, want) {
			t.Errorf("with %v, chmod: %v", errno, err)
		}
		if text, err := os.ReadFile(at("other")); err != nil || string(text) != long {
			t.Errorf("with %v, read %d bytes, %v", errno, len(text), err)
		}
		m.Fail(0)
		if err := os.WriteFile(at("new"), nil, 0o600); err != nil {
			t.Errorf("after %v: %v", errno, err)
		}
		if err := os.Remove(at("new")); err != nil {
			t.Error(err)
		}
	}
}
