package filewatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestState: each change of a watched name makes another state, and nothing else does.
func TestState(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	trail := Trail{}
	trail.Tree(dir, func(name string) bool { return filepath.Ext(name) != ".swp" })
	s := trail[dir]
	before := s.state(0)
	for _, step := range []struct {
		name, differs string
		do            func() error
	}{
		{"made", "a", write(path("a"), "1")},
		{"written", "a", write(path("a"), "22")},
		{"replaced", "a", replace(path("a"), "33")},
		{"its mode", "a", func() error { return os.Chmod(path("a"), 0o640) }},
		{"its times", "a", func() error { return os.Chtimes(path("a"), time.Unix(1, 0), time.Unix(1, 0)) }},
		{"another beside", "", write(path("x.swp"), "")},
		{"a directory", "d.swp", mkdir(path("d.swp"))},
		{"what is in that", "", write(path("d.swp/f"), "")},
		{"removed", "a", remove(path("a"))},
		{"the whole replaced", ".", func() error {
			all(t, move(dir, dir+".old"), mkdir(dir), mkdir(path("d.swp")))
			return nil
		}},
	} {
		all(t, step.do)
		now := s.state(0)
		name, differs := now.difference(before)
		if differs != (step.differs != "") || differs && step.differs != "." && name != step.differs {
			t.Errorf("%s: %q differs, %v; want %q", step.name, name, differs, step.differs)
		}
		before = now
	}
	all(t, write(path("young"), ""))
	if _, differs := s.state(time.Hour).difference(s.state(time.Hour)); !differs {
		t.Error("a file that may change with the same times counts as unchanged")
	}
}
