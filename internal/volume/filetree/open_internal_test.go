package filetree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// Kernels without openat2 open what others open, and refuse what they refuse.
func TestBothWaysOfOpeningAgree(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Mkdir(at("directory"), 0o700), os.Mkdir(at("mounted"), 0o700), os.Mkdir(at("hung"), 0o700), os.WriteFile(at("file"), nil, 0o600), os.WriteFile(at("bound"), nil, 0o600),
		os.Symlink("directory", at("link")), unix.Mkfifo(at("fifo"), 0o600),
		unix.Mount("tmpfs", at("mounted"), "tmpfs", 0, ""), unix.Mount(at("file"), at("bound"), "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(at("mounted"), unix.MNT_DETACH), unix.Unmount(at("bound"), unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	mounttest.Mount(t, at("hung")).Hang()
	parent, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(parent)
	const pin = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for _, c := range []struct {
		name  string
		flags int
		want  error
	}{
		{"directory", dirFlags, nil}, {"file", dirFlags, unix.ENOTDIR}, {"fifo", dirFlags, unix.ENOTDIR}, {"link", dirFlags, unix.ENOTDIR},
		{"mounted", dirFlags, unix.EXDEV}, {"hung", dirFlags, unix.EXDEV}, {"gone", dirFlags, unix.ENOENT},
		{"directory", pin, nil}, {"file", pin, nil}, {"fifo", pin, nil}, {"link", pin, nil}, {"mounted", pin, unix.EXDEV}, {"bound", pin, unix.EXDEV}, {"gone", pin, unix.ENOENT},
	} {
		for way, open := range map[string]func(int, string, int) (int, error){"openat2": openBelow, "openat": openChecked} {
			fd, err := open(parent, c.name, c.flags)
			if err == nil {
				_ = unix.Close(fd)
			}
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err != nil && !skips(err) {
				t.Errorf("%s opens %s, with flags %#x: %v, want %v", way, c.name, c.flags, err, c.want)
			}
		}
	}
}
