package safeopen_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
)

// What is mounted on a directory when it is used is asked for, rather than the empty directory below taken.
func TestTopUsesTheDir(t *testing.T) {
	for _, suffix := range []string{"", "-link"} {
		dir := t.TempDir()
		must(t, os.Symlink(dir, dir+"-link"))
		safeopentest.Automount(t, dir)
		if top, err := safeopen.Top(dir + suffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, %v", dir+suffix, top, err)
		}
	}
}

func TestTopIsAnything(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), nil, 0o600))
	must(t, unix.Mkfifo(at("fifo"), 0o600))
	for _, path := range []string{dir, at("file"), at("fifo"), "/dev/null"} {
		top, err := safeopen.Top(path)
		must(t, err)
		got, err := top.Stat()
		must(t, err)
		if want, err := os.Stat(path); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
		must(t, top.Close())
	}
	for path, want := range map[string]error{at("none"): fs.ErrNotExist, at("file/x"): unix.ENOTDIR} {
		if _, err := safeopen.Top(path); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
