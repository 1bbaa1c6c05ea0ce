package safeopen

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestADirThatWasMovedAwayIsNoticed: whoever can write outside, too, may move a directory there
// after it was passed.
func TestADirThatWasMovedAwayIsNoticed(t *testing.T) {
	top := t.TempDir()
	inside := filepath.Join(top, "volume/a/b")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	w := &walker{root: open(filepath.Join(top, "volume")), passed: []int{open(inside)}}
	if err := w.verify(); err != nil {
		t.Errorf("where it was: %v", err)
	}
	if err := os.Rename(inside, filepath.Join(top, "b")); err != nil {
		t.Fatal(err)
	}
	if err := w.verify(); !errors.Is(err, unix.EXDEV) {
		t.Errorf("after it was moved: %v", err)
	}
	if err := (&walker{root: w.root}).verify(); err != nil {
		t.Errorf("root itself: %v", err)
	}
}

func TestTheMountIsTheSameByBothWays(t *testing.T) {
	for _, path := range []string{"/", "/proc", "/dev/null", t.TempDir()} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		one, err := mountID(fd)
		other, otherErr := mountIDByProc(fd)
		if err != nil || otherErr != nil || one != other || one == 0 {
			t.Errorf("%s: %d, %v; by /proc %d, %v", path, one, err, other, otherErr)
		}
		_ = unix.Close(fd) // it was only looked at
	}
}
