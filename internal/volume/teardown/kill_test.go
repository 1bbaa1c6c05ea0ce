package teardown

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

// TestKilledAnywhere: called again, what Remove does goes on from wherever they were cut short.
func TestKilledAnywhere(t *testing.T) {
	house := func(dir string) house {
		parent := filepath.Join(dir, "pods")
		return house{parent: parent, tree: filepath.Join(parent, "uid"), precious: filepath.Join(dir, "precious")}
	}
	for name, call := range map[string]func(context.Context, string, string) error{"remove": Remove, "unmount": unmountAll} {
		killtest.Run(t, killtest.Case{
			Name: name,
			Fresh: func(t *testing.T, dir string) {
				h := newHouseIn(t, dir)
				deep := filepath.Join(h.tree, "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r")
				must(t, os.MkdirAll(deep, 0o755))
				must(t, os.Symlink(h.precious, filepath.Join(deep, "link")))
				mounted := filepath.Join(h.tree, "mounted")
				must(t, os.Mkdir(mounted, 0o755))
				must(t, unix.Mount("tmpfs", mounted, "tmpfs", 0, ""))
				must(t, os.Mkdir(filepath.Join(mounted, "inner"), 0o755))
				must(t, unix.Mount(h.precious, filepath.Join(mounted, "inner"), "", unix.MS_BIND, ""))
			},
			Child: func(dir string) error { return call(context.Background(), house(dir).parent, "uid") },
			Check: func(t *testing.T, dir string, n int) {
				h := house(dir)
				if name == "unmount" {
					must(t, unmountAll(t.Context(), h.parent, "uid"))
					noMounts(t, h.tree)
				}
				must(t, h.remove())
				h.checkGone(t)
				noMounts(t, h.parent)
			},
		})
	}
}
