package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Neither a try nor one that was killed leaves anything.
func TestTryOverlay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long, odd: ", 20))
	old, fresh := filepath.Join(dir, tryDirs+"1"), filepath.Join(dir, tryDirs+"2")
	for _, d := range []string{old, fresh} {
		if err := os.MkdirAll(filepath.Join(d, "work", "work"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	if err := TryOverlay(dir); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(fresh) {
		t.Errorf("left is %v, error %v", entries, err)
	}
}

// A file system that can't carry one is found out: another overlayfs.
func TestTryOverlayRefused(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(base, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := TryOverlay(merged); err == nil {
		t.Error("an overlayfs carries another")
	}
	if left, err := os.ReadDir(merged); err != nil || len(left) > 0 {
		t.Errorf("left is %v, error %v", left, err)
	}
}
