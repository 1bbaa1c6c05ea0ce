package teardown

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
)

// TestAttackWithoutOpenat2 attacks where directories are opened without it.
func TestAttackWithoutOpenat2(t *testing.T) {
	safeopentest.Again(t, unix.ENOSYS, "^TestAttack$", "^$")
}

// TestAttack swaps directories of a tree for links to the canary, and mounts the canary in it, while the
// tree is removed and its mounts are taken off.
func TestAttack(t *testing.T) {
	top := t.TempDir()
	mount(t, "tmpfs", top, "tmpfs", 0) // many more tries than on a disk
	canary := safeopentest.NewCanary(t, filepath.Join(top, "outside"))
	pods := filepath.Join(top, "pods")
	in := func(name string) string { return filepath.Join(pods, "uid", name) }
	t.Cleanup(func() {
		// Attackers are gone by now.
		if err := Remove(context.Background(), pods, "uid"); err != nil {
			t.Error(err)
		}
		canary.Check(t)
	})
	next := filepath.Join(pods, "next")
	plant := func() {
		if _, err := os.Lstat(filepath.Join(pods, "uid")); err == nil {
			return // wasn't removed
		}
		for _, dir := range []string{"a/b/c", "p/q/r", "m/n/o"} {
			must(t, os.MkdirAll(filepath.Join(next, dir), 0o755))
			must(t, os.WriteFile(filepath.Join(next, dir, safeopentest.Secret), nil, 0o644))
		}
		for link, target := range map[string]string{"a/evil": canary.Dir, "evil": "../../outside", "p/evil": "../../../outside"} {
			must(t, os.Symlink(target, filepath.Join(next, link)))
		}
		must(t, os.Rename(next, filepath.Join(pods, "uid"))) // attackers know it from now on
	}
	turn := 0
	safeopentest.Attack{
		Canary: canary,
		Swaps: []func() error{
			safeopentest.Exchange(in("a/b"), in("a/evil")),
			safeopentest.Exchange(in("p"), in("evil")),
			safeopentest.Exchange(in("p/q"), in("p/evil")),
			safeopentest.BindOver(canary.Dir, in("m/n/o")),
			safeopentest.Exchange(in("m/n"), in("a/b")),
			safeopentest.BindOver(canary.Dir, in("a/b/c")),
		},
		Try: func() error {
			turn++
			plant()
			if turn%3 == 0 {
				return unmountAll(t.Context(), pods, "uid")
			}
			return Remove(t.Context(), pods, "uid")
		},
		// Something was mounted again, or not any more, or put there meanwhile.
		Refused: func(err error) bool { return true },
	}.Run(t)
}
