package safeopen_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
)

// TestAttackWithoutOpenat2 attacks the walking that is done here.
func TestAttackWithoutOpenat2(t *testing.T) {
	safeopentest.Again(t, unix.ENOSYS, "^TestAttack$", "^$")
}

// TestAttack swaps whatever a path leads over while it is opened.
//
//	volume/dir        a directory, swapped with volume/evil -> ../outside
//	volume/p/q        a directory, p swapped with volume/evilParent -> ../outside/p
//	volume/x/y/z      y is swapped with volume/y, so that ".." leads higher than it came from
//	volume/gone       is swapped with elsewhere/gone, so that ".." is outside
//	volume/mounted    outside is mounted on it and taken off
//
// In every directory there is a file of the canary's name, which is not the canary.
func TestAttack(t *testing.T) {
	top := t.TempDir()
	mount(t, "tmpfs", top, "tmpfs", 0) // many more tries than on a disk
	volume, elsewhere := filepath.Join(top, "volume"), filepath.Join(top, "elsewhere")
	canary := safeopentest.NewCanary(t, filepath.Join(top, "outside"))
	for _, dir := range []string{"", "dir", "p/q", "x/y/z", "y/z", "gone/in", "mounted", "made", "outside"} {
		write(t, filepath.Join(volume, dir, safeopentest.Secret), "the pod's own")
	}
	must(t, os.MkdirAll(filepath.Join(elsewhere, "gone/in"), 0o755))
	must(t, os.Symlink(canary.File, filepath.Join(elsewhere, safeopentest.Secret)))
	must(t, os.Symlink("../outside", filepath.Join(volume, "evil")))
	must(t, os.Symlink(canary.Dir, filepath.Join(volume, "evilParent")))
	must(t, os.Symlink("../outside", filepath.Join(volume, "evilMade")))
	in := func(name string) string { return filepath.Join(volume, name) }
	t.Cleanup(func() {
		for unix.Unmount(in("mounted"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
	})
	root := path(t, volume)
	made := 0
	ways := []func() (*os.File, error){
		func() (*os.File, error) { return safeopen.Open(root, "dir/secret", os.O_RDONLY, 0) },
		func() (*os.File, error) { return safeopen.Open(root, "dir", unix.O_PATH|unix.O_DIRECTORY, 0) },
		func() (*os.File, error) { return safeopen.OpenNoLinks(root, "p/q/secret", os.O_RDWR, 0) },
		func() (*os.File, error) { return safeopen.Open(root, "x/y/z/../../../secret", unix.O_PATH, 0) },
		func() (*os.File, error) {
			return safeopen.Open(root, "x/y/z/../../../../outside/secret", unix.O_PATH, 0)
		},
		func() (*os.File, error) { return safeopen.Open(root, "x/y/z/../../../outside/secret", unix.O_PATH, 0) },
		func() (*os.File, error) { return safeopen.Open(root, "y/../../outside/secret", unix.O_PATH, 0) },
		func() (*os.File, error) { return safeopen.Open(root, "gone/in/../../secret", unix.O_PATH, 0) },
		func() (*os.File, error) { return safeopen.OpenSameMount(root, "mounted/secret", unix.O_PATH, 0) },
		func() (*os.File, error) { return safeopen.Enter(root, "mounted") },
		func() (*os.File, error) { return safeopen.Enter(root, "dir") },
		func() (*os.File, error) {
			made++
			return safeopen.MkdirAll(root, fmt.Sprintf("made/%d/%d", made%50, made%7), 0o777)
		},
		func() (*os.File, error) {
			return safeopen.Open(root, fmt.Sprintf("made/f%d", made%50), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		},
	}
	turn := 0
	safeopentest.Attack{
		Canary: canary,
		Swaps: []func() error{
			safeopentest.Exchange(in("dir"), in("evil")),
			safeopentest.Exchange(in("p"), in("evilParent")),
			safeopentest.Exchange(in("x/y"), in("y")),
			safeopentest.Exchange(in("gone"), filepath.Join(elsewhere, "gone")),
			safeopentest.BindOver(canary.Dir, in("mounted")),
			safeopentest.Exchange(in("made"), in("evilMade")),
		},
		Try: func() error {
			turn++
			f, err := ways[turn%len(ways)]()
			if err != nil {
				if !expected(err) {
					t.Errorf("way %d: %v", turn%len(ways), err)
				}
				return err
			}
			defer f.Close()
			if canary.Is(f) {
				t.Errorf("way %d led outside", turn%len(ways))
			}
			return nil
		},
	}.Run(t)
}

// expected are the errors that come from what is swapped just then.
func expected(err error) bool {
	for _, want := range []error{safeopen.ErrEscapes, unix.ENOENT, unix.ENOTDIR, unix.EAGAIN} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}
