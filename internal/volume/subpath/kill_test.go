package subpath_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

// TestKilledAnywhere: called again, Bind goes on from wherever it was cut short.
func TestKilledAnywhere(t *testing.T) {
	request := func(dir, path string) subpath.Request {
		return subpath.Request{UID: "uid", Volume: "vol", Container: "c", Root: filepath.Join(dir, "volume"), Path: path}
	}
	fresh := func(t *testing.T, dir string) {
		must(t, os.Mkdir(filepath.Join(dir, "pods"), 0o750))
		must(t, os.MkdirAll(filepath.Join(dir, "volume", "old"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "volume", "file"), nil, 0o644))
	}
	for _, tc := range []struct{ name, before, path string }{
		{"a directory that is made", "", "new/er"},
		{"a file", "", "file"},
		{"a file where a directory was", "old", "file"},
		{"a directory where a file was", "file", "new"},
	} {
		killtest.Run(t, killtest.Case{
			Name: tc.name,
			Fresh: func(t *testing.T, dir string) {
				fresh(t, dir)
				if tc.before != "" {
					_, err := subpath.New(filepath.Join(dir, "pods")).Bind(t.Context(), request(dir, tc.before))
					must(t, err)
				}
			},
			Child: func(dir string) error {
				_, err := subpath.New(filepath.Join(dir, "pods")).Bind(context.Background(), request(dir, tc.path))
				return err
			},
			Check: func(t *testing.T, dir string, n int) {
				place, err := subpath.New(filepath.Join(dir, "pods")).Bind(t.Context(), request(dir, tc.path))
				must(t, err)
				check(t, place, filepath.Join(dir, "volume", tc.path))
				if list, err := mounts.List(dir); err != nil || len(list) != 1 {
					t.Errorf("step %d: mounted are %v, %v", n, list, err)
				}
				must(t, unix.Unmount(place, unix.UMOUNT_NOFOLLOW))
			},
		})
	}
}
