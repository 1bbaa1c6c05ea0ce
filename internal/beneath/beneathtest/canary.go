package beneathtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Secret is the name of the canary's file.
const Secret = "secret"

// Canary is a folder with a file that nobody may touch.
type Canary struct {
	// Dir is the folder, and File what is in it.
	Dir, File string
	before    string
	inodes    [2]unix.Stat_t
}

// NewCanary makes the folder dir and the file in it.
func NewCanary(t testing.TB, dir string) *Canary {
	t.Helper()
	c := &Canary{Dir: dir, File: filepath.Join(dir, Secret)}
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.File, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.before, err = c.look(&c.inodes); err != nil {
		t.Fatal(err)
	}
	return c
}

// Check fails the test if anything of it was changed: names, content, owners, modes, links.
func (c *Canary) Check(t testing.TB) {
	t.Helper()
	var st [2]unix.Stat_t
	if now, err := c.look(&st); err != nil || now != c.before {
		t.Errorf("what is outside was touched:\nbefore %s\nnow    %s %v", c.before, now, err)
	}
}

// Is reports whether an open file is the canary's folder or file, whatever way led to it.
func (c *Canary) Is(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	return c.has(st)
}

// IsAt is Is for what a path leads to.
func (c *Canary) IsAt(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && c.has(st)
}

func (c *Canary) has(st unix.Stat_t) bool {
	for _, own := range c.inodes {
		if own.Dev == st.Dev && own.Ino == st.Ino {
			return true
		}
	}
	return false
}

// look describes everything that a change would change. The time of the last change
// of the inode is there for what is changed and changed back.
func (c *Canary) look(st *[2]unix.Stat_t) (string, error) {
	for i, path := range []string{c.Dir, c.File} {
		if err := unix.Lstat(path, &st[i]); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	names, err := os.ReadDir(c.Dir)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(c.File)
	out := fmt.Sprintf("%q in %v", text, names)
	for _, s := range st {
		out += fmt.Sprintf(", %d mode %o owner %d:%d links %d changed %v", s.Ino, s.Mode, s.Uid, s.Gid, s.Nlink, s.Ctim)
	}
	return out, err
}
