package filewatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *Watcher {
	t.Helper()
	w := newInstance(logr.Discard()).Open(func(t Trail) { t.Path(path) })
	t.Cleanup(w.Close)
	arm(t, w)
	return w
}

func arm(t *testing.T, w *Watcher) {
	t.Helper()
	if err := w.Arm(); err != nil {
		t.Fatal(err)
	}
}

// await receives events until the wanted one, and returns those before it.
func await(t *testing.T, w *Watcher, want Event) (before []Event) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case e := <-w.Events():
			if e.Op == want.Op && (e.Name == want.Name || e.Op == Rescan) {
				return before
			}
			before = append(before, e)
		case <-late:
			t.Fatalf("waited in vain for %+v after %+v", want, before)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsDoneOnlyWhenItsWriterClosesIt(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	f, err := os.Create(filepath.Join(dir, "a"))
	do(t, err)
	await(t, w, Event{Name: "a", Op: Writing})
	_, err = f.WriteString("half")
	do(t, err)
	do(t, f.Chmod(0o644))
	for _, e := range await(t, w, Event{Name: "a", Op: Touched}) {
		if e.Op == Done {
			t.Error("done before it was closed")
		}
	}
	do(t, f.Close())
	await(t, w, Event{Name: "a", Op: Done})
}

func TestRenameAndRemove(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	w := open(t, dir)
	do(t, os.WriteFile(filepath.Join(outside, "x"), nil, 0o600))
	do(t, os.Rename(filepath.Join(outside, "x"), filepath.Join(dir, "a")))
	await(t, w, Event{Name: "a", Op: Done})
	do(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	await(t, w, Event{Name: "a", Op: MovedAway})
	await(t, w, Event{Name: "b", Op: Done})
	do(t, os.Remove(filepath.Join(dir, "b")))
	await(t, w, Event{Name: "b", Op: Deleted})
}

// However deep the missing path: each level that appears asks for a look, which
// arms for the next.
func TestPathThatDoesNotExistYet(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	w := open(t, dir)
	do(t, os.Mkdir(filepath.Join(root, "a"), 0o700))
	await(t, w, Event{Op: Rescan})
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(root, "a", "other"), nil, 0o600))
	do(t, os.Mkdir(dir, 0o700))
	if before := await(t, w, Event{Op: Rescan}); len(before) > 0 {
		t.Errorf("told of a name that isn't the path: %v", before)
	}
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	await(t, w, Event{Name: "f", Op: Done})
}

func TestDirRemovedAndBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	do(t, os.Mkdir(dir, 0o700))
	w := open(t, dir)
	for range 3 {
		do(t, os.Remove(dir))
		await(t, w, Event{Op: Rescan})
		arm(t, w)
		do(t, os.Mkdir(dir, 0o700))
		await(t, w, Event{Op: Rescan})
		arm(t, w)
		do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
		await(t, w, Event{Name: "f", Op: Done})
		do(t, os.Remove(filepath.Join(dir, "f")))
	}
}

func TestDirSwapped(t *testing.T) {
	root := t.TempDir()
	dir, next := filepath.Join(root, "d"), filepath.Join(root, "next")
	do(t, os.Mkdir(dir, 0o700))
	do(t, os.Mkdir(next, 0o700))
	w := open(t, dir)
	do(t, os.Rename(dir, filepath.Join(root, "old")))
	do(t, os.Rename(next, dir))
	await(t, w, Event{Op: Rescan})
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(root, "old", "f"), nil, 0o600))
	do(t, os.WriteFile(filepath.Join(dir, "g"), nil, 0o600))
	for _, e := range await(t, w, Event{Name: "g", Op: Done}) {
		if e.Name == "f" {
			t.Error("the old directory is still watched")
		}
	}
}

func TestLinkToADirSwapped(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"v1", "v2"} {
		do(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	link := filepath.Join(root, "current")
	do(t, os.Symlink("v1", link))
	w := open(t, link)
	do(t, os.WriteFile(filepath.Join(root, "v1", "f"), nil, 0o600))
	await(t, w, Event{Name: "f", Op: Done})
	do(t, os.Symlink("v2", link+".new"))
	do(t, os.Rename(link+".new", link))
	await(t, w, Event{Op: Rescan})
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(root, "v2", "g"), nil, 0o600))
	await(t, w, Event{Name: "g", Op: Done})
}

func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.yaml")
	w := open(t, path)
	do(t, os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o600))
	do(t, os.WriteFile(path, []byte("x"), 0o600))
	for _, e := range await(t, w, Event{Name: "pods.yaml", Op: Done}) {
		if e.Name != "pods.yaml" {
			t.Errorf("told of %+v", e)
		}
	}
	do(t, os.Remove(path))
	await(t, w, Event{Name: "pods.yaml", Op: Deleted})
	do(t, os.Mkdir(path, 0o700))
	await(t, w, Event{Op: Rescan})
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, unix.SizeofInotifyEvent))
	f.Add([]byte("\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\x7fabc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < unix.SizeofInotifyEvent {
			return
		}
		if _, _, name, size := decode(b); size > len(b) || size < unix.SizeofInotifyEvent || len(name) > size {
			t.Errorf("name %q, size %d of %d bytes", name, size, len(b))
		}
	})
}

// Between following a link and watching it, it may be swapped.
func TestLinkSwappedWhileArming(t *testing.T) {
	root := t.TempDir()
	link := filepath.Join(root, "current")
	for _, name := range []string{"v1", "v2"} {
		do(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	do(t, os.Symlink("v1", link))
	followed := 0
	w := newInstance(logr.Discard()).Open(func(trail Trail) {
		trail.Path(link)
		if followed++; followed == 1 {
			do(t, os.Symlink("v2", link+".new"))
			do(t, os.Rename(link+".new", link))
		}
	})
	defer w.Close()
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(root, "v2", "f"), nil, 0o600))
	await(t, w, Event{Name: "f", Op: Done})
}

func TestLinkFarAboveSwapped(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"v1", "v2"} {
		do(t, os.MkdirAll(filepath.Join(root, name, "etc", "manifests"), 0o700))
	}
	link := filepath.Join(root, "current")
	do(t, os.Symlink("v1", link))
	w := open(t, filepath.Join(link, "etc", "manifests"))
	do(t, os.Symlink("v2", link+".new"))
	do(t, os.Rename(link+".new", link))
	await(t, w, Event{Op: Rescan})
	arm(t, w)
	do(t, os.WriteFile(filepath.Join(root, "v2", "etc", "manifests", "f"), nil, 0o600))
	await(t, w, Event{Name: "f", Op: Done})
}

// What happens beside a path isn't told, and neither is what is done to the content of directories above it.
func TestNothingElseIsReported(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	do(t, os.MkdirAll(dir, 0o700))
	w := open(t, dir)
	do(t, os.Mkdir(filepath.Join(root, "other"), 0o700))
	do(t, os.WriteFile(filepath.Join(root, "a", "other"), nil, 0o600))
	do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	for _, e := range await(t, w, Event{Name: "f", Op: Done}) {
		if e.Dir != dir || e.Name != "f" {
			t.Errorf("told of %+v", e)
		}
	}
}
