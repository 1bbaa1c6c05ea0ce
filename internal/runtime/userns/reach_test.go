package userns_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

func TestReach(t *testing.T) {
	top, err := os.MkdirTemp("", "reach") // mode 0700, in a directory that all get through
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := userns.Reach(dir); err == nil || !strings.Contains(err.Error(), "through directory "+top+" with mode 0700: chmod o+x "+top) {
		t.Errorf("through a closed directory: %v", err)
	}
	if err := os.Chmod(top, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := userns.Reach(dir); err != nil {
		t.Error(err)
	}
	if userns.Reach(filepath.Join(dir, "c")) == nil {
		t.Error("a directory that isn't there")
	}
}
