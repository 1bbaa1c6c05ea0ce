package document_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/config/document"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// The order is that of the kubelet 1.36.3: directory by directory, so that b/ comes
// before b.conf.
func TestReadDir(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "d")
	for _, name := range []string{"b.conf", "10.conf", "9.conf", "b/z.conf", "b/c/a.conf", "x.conf/y.conf", ".conf", "a.yaml", "a.CONF", "README", "a.conf.bak", "../other/q.conf"} {
		write(t, filepath.Join(dir, name), name)
	}
	link(t, "../other/q.conf", filepath.Join(dir, "l.conf"))
	link(t, "../other", filepath.Join(dir, "directory"))
	link(t, "nowhere", filepath.Join(dir, "dangling"))
	link(t, dir, filepath.Join(top, "link"))
	want := []string{".conf", "10.conf", "9.conf", "b/c/a.conf", "b/z.conf", "b.conf", "../other/q.conf", "x.conf/y.conf"}
	for _, dir := range []string{dir, filepath.Join(top, "link")} {
		files, err := document.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range files {
			got = append(got, string(f.Data))
			if !strings.HasPrefix(f.Path, dir+"/") {
				t.Errorf("the path %s isn't below %s", f.Path, dir)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: read %v, want %v", dir, got, want)
		}
	}
	if files, err := document.ReadDir(t.TempDir()); err != nil || len(files) != 0 {
		t.Errorf("an empty directory: %v, %v", files, err)
	}
}

func TestReadDirNamesAllThatIsBad(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good.conf"), "")
	write(t, filepath.Join(dir, "big.conf"), strings.Repeat("a", document.MaxSize+1))
	link(t, "nowhere", filepath.Join(dir, "dangling.conf"))
	link(t, ".", filepath.Join(dir, "directory.conf"))
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := document.ReadDir(dir)
	if err == nil || files != nil {
		t.Fatalf("files %v, error %v", files, err)
	}
	for _, want := range []string{
		"big.conf can't be read: it has more than 1048576 bytes",
		"dangling.conf can't be read: no such file or directory",
		"directory.conf can't be read: is a directory",
		"pipe.conf can't be read: it is not a regular file",
	} {
		if !strings.Contains(err.Error(), filepath.Join(dir, want)) {
			t.Errorf("nothing says %q in:\n%v", want, err)
		}
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 4 {
		t.Errorf("%d errors, want 4:\n%v", n, err)
	}
	for _, dir := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "good.conf")} {
		if _, err := document.ReadDir(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error is %v", dir, err)
		}
	}
}

func TestReadDirIsBounded(t *testing.T) {
	many := t.TempDir()
	for i := range 1001 {
		link(t, "/dev/null", filepath.Join(many, strings.Repeat("a", 1+i%200)+strings.Repeat("b", i/200)+".conf"))
	}
	large := t.TempDir()
	write(t, filepath.Join(large, "x"), strings.Repeat("a", document.MaxSize))
	for i := range 2 {
		link(t, "x", filepath.Join(large, string(rune('a'+i))+".conf"))
	}
	for _, dir := range []string{many, large} {
		if _, err := document.ReadDir(dir); err == nil || !strings.Contains(err.Error(), "holds too much") {
			t.Errorf("the error is %.200v", err)
		}
	}
}
