package usage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// TestOpensOfAWalk: a walk opens each directory once, and no other file.
func TestOpensOfAWalk(t *testing.T) {
	top := ram(t)
	dirs := []string{top}
	for i := range 3 {
		for _, name := range []string{fmt.Sprint(i), fmt.Sprint(i, "/a"), fmt.Sprint(i, "/a/b")} {
			dir := filepath.Join(top, name)
			must(t, os.Mkdir(dir, 0o700))
			dirs = append(dirs, dir)
			for n := range 40 {
				must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600))
			}
		}
	}
	o, m := mounttest.WatchOpens(t, dirs...), usage.New(usage.Config{})
	for range 3 {
		if u := measure(t, m, top); u.Inodes != int64(len(dirs)+9*40) {
			t.Fatalf("measured %+v", u)
		}
		if d, f := o.Since(); d != len(dirs) || f != 0 {
			t.Errorf("a walk through %d directories opened %d directories and %d files", len(dirs), d, f)
		}
	}
}
