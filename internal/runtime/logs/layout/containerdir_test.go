package layout_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

func open(t *testing.T) (*layout.ContainerDir, string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "pod", "web")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	directory, err := layout.Open(root, "pod/web")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { directory.Close() })
	return directory, dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	current = layout.Current(0)
	aside   = layout.Name{Stamp: "20260102-030405"}
)

func TestRenameReplacesNothing(t *testing.T) {
	directory, dir := open(t)
	put(t, filepath.Join(dir, "0.log"), "new")
	put(t, filepath.Join(dir, aside.String()), "old")
	if err := directory.Rename(current, aside); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want fs.ErrExist", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, aside.String())); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(directory.Remove(aside), directory.Remove(aside), directory.Rename(current, aside), directory.Sync()); err != nil {
		t.Error(err)
	}
	if files, err := directory.Files(0); err != nil || len(files) != 1 || files[0] != aside {
		t.Errorf("%v, %v", files, err)
	}
	if err := directory.Rename(current, aside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestCreateOpensNothingThatIsThere(t *testing.T) {
	directory, dir := open(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(dir, aside.String())); err != nil {
		t.Fatal(err)
	}
	if f, err := directory.Create(aside); err == nil {
		f.Close()
		t.Error("opened a link")
	}
	f, err := directory.Create(current)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Error("followed a link")
	}
}

func TestOpenRefuses(t *testing.T) {
	directory, dir := open(t)
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "1.log"), 0o600), os.Symlink("/etc/passwd", filepath.Join(dir, "2.log")), os.Mkdir(filepath.Join(dir, "3.log"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		if f, err := directory.Open(layout.Current(attempt)); err == nil || !strings.Contains(err.Error(), "not read as a log") {
			f.Close()
			t.Errorf("%d.log: %v", attempt, err)
		}
	}
	if _, err := directory.Open(layout.Current(4)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	for _, name := range []string{"../other", "/etc", "link"} {
		root := filepath.Dir(dir)
		if err := os.Symlink("web", filepath.Join(root, "link")); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if f, err := layout.Open(root, name); err == nil {
			f.Close()
			t.Errorf("opened %s", name)
		}
	}
}

func TestWriting(t *testing.T) {
	directory, dir := open(t)
	path := filepath.Join(dir, "0.log")
	writer, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := directory.Open(current)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, step := range []struct {
		do      func() error
		writing bool
	}{
		{func() error { return nil }, true},
		{func() error { return os.Rename(path, filepath.Join(dir, aside.String())) }, true},
		{writer.Close, false},
		{func() error { return nil }, false},
		{func() error { return os.Remove(filepath.Join(dir, aside.String())) }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got, err := filewatch.HasWriter(f); err != nil || got != step.writing {
			t.Errorf("step %d: writing is %v, %v", i, got, err)
		}
	}
	// The lease doesn't stay: it would hold up the next writer.
	put(t, filepath.Join(dir, "5.log"), "x")
	again, err := directory.Open(layout.Current(5))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := filewatch.HasWriter(again); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(filepath.Join(dir, "5.log"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("the lease is still held: %v", err)
	}
	w.Close()
}

func TestNameOf(t *testing.T) {
	directory, dir := open(t)
	put(t, filepath.Join(dir, "0.log"), "")
	f, err := directory.Open(current)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	expect := func(want string, wantRemoved bool) {
		t.Helper()
		if name, removed, err := layout.NameOf(f); err != nil || name != want || removed != wantRemoved {
			t.Errorf("%s, %v, %v; want %s, %v", name, removed, err, want, wantRemoved)
		}
	}
	expect("0.log", false)
	if err := directory.Rename(current, aside); err != nil {
		t.Fatal(err)
	}
	expect(aside.String(), false)
	if err := directory.Remove(aside); err != nil {
		t.Fatal(err)
	}
	expect(aside.String(), true)
}
