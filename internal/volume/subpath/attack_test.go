package subpath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

// TestAttackWithoutOpenat2 attacks where paths are walked without it.
func TestAttackWithoutOpenat2(t *testing.T) {
	safeopentest.Again(t, unix.ENOSYS, "^TestAttack$", "^$")
}

// TestAttack swaps directories of a volume for links to the canary while parts of it are bound: what is
// bound is never the canary, and nothing is made in its directory.
func TestAttack(t *testing.T) {
	top := t.TempDir()
	must(t, unix.Mount("tmpfs", top, "tmpfs", 0, "")) // many more tries than on a disk
	t.Cleanup(func() { _ = unix.Unmount(top, unix.MNT_DETACH) })
	h := newHouseIn(t, top)
	canary := safeopentest.NewCanary(t, filepath.Join(top, "canary"))
	for _, dir := range []string{"dir", "p/q", "made", "x/y"} {
		h.write(t, filepath.Join(dir, safeopentest.Secret), "the pod's own")
	}
	up := "../../../../../canary"
	for link, target := range map[string]string{"evil": up, "evilParent": canary.Dir, "evilMade": up, "x/evilFile": canary.File} {
		must(t, os.Symlink(target, h.in(link)))
	}
	turn := 0
	paths := []func() string{
		func() string { return "dir" },
		func() string { return "dir/secret" },
		func() string { return "p/q/secret" },
		func() string { return "x/y/secret" },
		func() string { return fmt.Sprintf("made/%d/%d", turn%20, turn%3) },
		func() string { return fmt.Sprintf("dir/made%d", turn%20) },
	}
	safeopentest.Attack{
		Canary: canary,
		Swaps: []func() error{
			safeopentest.Exchange(h.in("dir"), h.in("evil")),
			safeopentest.Exchange(h.in("p"), h.in("evilParent")),
			safeopentest.Exchange(h.in("made"), h.in("evilMade")),
			safeopentest.Exchange(h.in("x/y/secret"), h.in("x/evilFile")),
			safeopentest.Exchange(h.in("x/y"), h.in("p/q")),
		},
		Try: func() error {
			turn++
			path := paths[turn%len(paths)]()
			place, err := h.maker.Bind(t.Context(), subpath.Request{UID: "uid", Volume: "vol", Container: "c", Index: turn % 4, Root: h.volume, Path: path})
			if err != nil {
				if !errors.Is(err, safeopen.ErrEscapes) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
					t.Error(err)
				}
				return err
			}
			if canary.IsAt(place) {
				t.Errorf("%s is bound outside", path)
			}
			return nil
		},
	}.Run(t)
}
