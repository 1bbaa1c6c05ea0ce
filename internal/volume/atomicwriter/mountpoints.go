package atomicwriter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// checkMountPoints refuses mount points inside a generation: when an update removes the generation, the kernel
// detaches the mounts below it.
func (w *writer) checkMountPoints(want *node) error {
	for _, path := range w.options.MountPoints {
		if err := Check(path); err != nil {
			return fmt.Errorf("a container mounts something in the volume: %w", err)
		}
		if first, _, _ := strings.Cut(path, "/"); want.sub[first] != nil {
			return fmt.Errorf("a container mounts something in the volume at %s, and %s is the volume's own, which "+
				"every update replaces: mount it elsewhere, or have no file there",
				quoted(path), quoted(first))
		}
	}
	return nil
}

// makeMountPoints makes the missing mount points.
func (w *writer) makeMountPoints() error {
	for _, path := range w.options.MountPoints {
		if err := w.makeDirs(w.dir, strings.Split(path, "/")); err != nil {
			return w.failure("make the mount point", path, err)
		}
	}
	return nil
}

// makeDirs makes a chain of nested directories in dir.
func (w *writer) makeDirs(dir *os.File, names []string) error {
	if len(names) == 0 {
		return nil
	}
	made := unix.Mkdirat(int(dir.Fd()), names[0], unreadyDir)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	f, err := safeopen.Enter(dir, names[0])
	if errors.Is(err, unix.EXDEV) {
		return nil // a mount that propagated to the host: it is another volume, and may hang
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if !matches(&st, unix.S_IFDIR|w.dirMode(), w.dirOwner()) {
		if err := chown(f, w.dirOwner(), w.dirMode()); err != nil {
			return err
		}
	}
	return w.makeDirs(f, names[1:])
}
