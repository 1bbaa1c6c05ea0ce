package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriteReplacesContentAndMode(t *testing.T) {
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{"Write": Write, "WriteVolatile": WriteVolatile} {
		t.Run(name, func(t *testing.T) {
			old := unix.Umask(0o077)
			defer unix.Umask(old)
			path := filepath.Join(t.TempDir(), "f")
			for i, perm := range []fs.FileMode{0o600, 0o644} {
				want := bytes.Repeat([]byte{byte('a' + i)}, 5-i)
				if err := write(path, want, perm); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("content %q (%v), want %q", got, err, want)
				}
				if st, err := os.Stat(path); err != nil || st.Mode() != perm {
					t.Errorf("mode %v (%v), want %v", st.Mode(), err, perm)
				}
			}
			onlyFile(t, filepath.Dir(path), "f")
		})
	}
}

// TestCreate: the file is as it was until Commit, and for good after Abandon.
func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		end  func(*File) error
		want string
	}{{(*File).Abandon, "old"}, {(*File).Commit, "new"}} {
		f, err := Create(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
			t.Errorf("before the end it is %q, %v", text, err)
		}
		if err := c.end(f); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != c.want {
			t.Errorf("got %q, %v, want %s", text, err, c.want)
		}
		onlyFile(t, filepath.Dir(path), "file")
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := Create(filepath.Join(path, "below"), 0o600); err == nil {
		t.Error("a file below a file can be made")
	}
}

func TestWriteReplacesALinkInsteadOfFollowingIt(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(t.TempDir(), "victim"), filepath.Join(dir, "f")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(victim); string(got) != "precious" {
		t.Errorf("the link's target now says %q", got)
	}
}

func TestFailureLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "sub"), 0o700); err != nil { // a directory can't be replaced by a file
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Fatal("replacing a directory succeeded")
	}
	onlyFile(t, dir, "f")
	if err := Write(filepath.Join(dir, "missing", "f"), nil, 0o600); err == nil {
		t.Error("writing into a missing directory succeeded")
	}
}

func TestReadersSeeWholeContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	contents := [2][]byte{bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 50_000)}
	if err := WriteVolatile(path, contents[0], 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 200 {
			if err := WriteVolatile(path, contents[i%2], 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
				t.Errorf("read a mixture of %d bytes (%v)", len(got), err)
				return
			}
		}
	})
	wg.Wait()
}

// TestDiskFull: DiskFull recognizes errors and texts of the kernel, of C programs and of the runtime, and no other errors.
func TestDiskFull(t *testing.T) {
	for text, tc := range map[string]struct {
		err  error
		want bool
	}{
		"no error":          {nil, false},
		"no space":          {&fs.PathError{Op: "write", Path: "/x", Err: unix.ENOSPC}, true},
		"a quota":           {&fs.PathError{Op: "write", Path: "/x", Err: unix.EDQUOT}, true},
		"read-only":         {&fs.PathError{Op: "write", Path: "/x", Err: unix.EROFS}, false},
		"containerd's text": {errors.New("rpc error: code = Unknown desc = mkdir /x: no space left on device"), true},
		"a C program's":     {errors.New("tar: x: Cannot write: No space left on device"), true},
		"a C program's two": {errors.New("x: Disk quota exceeded"), true},
		"runc's log":        {errors.New(`exit status 1: level=error msg="write \"/a b\": no space left on device"`), true},
		"a pod's command":   {errors.New(`exec: "/no space left on device": stat /no space left on device: no such file`), false},
		"in runc's log":     {errors.New(`level=error msg="exec: \"/no space left on device\": stat /no space left on device: no such file"`), false},
		"something else":    {errors.New("no space for rent"), false},
	} {
		if got := DiskFull(tc.err); got != tc.want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("directory has %v, want only %s", entries, name)
	}
}
