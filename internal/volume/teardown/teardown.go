// Package teardown removes a folder that pods could write to: whatever names,
// links, depth or mounts they left in it, nothing outside is touched.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// errMounted says that the walk came to something that is mounted.
var errMounted = errors.New("something is mounted there")

// Remove removes the tree called name in the folder parent, unmounting what is
// mounted in it. parent and everything above are trusted; nothing below is: no link is
// followed and no mount is entered. What isn't there is no error.
//
// When something can't be unmounted (it is in use), nothing of it is deleted and
// the error says so; other parts of the tree may be gone by then. Trying again is
// safe.
func Remove(ctx context.Context, parent, name string) error {
	dir, err := os.Open(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	// The mount table grows with the node's containers and is slow to read: it is
	// only looked at when there is something to unmount.
	err = removeTree(ctx, dir, name)
	if !errors.Is(err, errMounted) {
		return err
	}
	if err := unmountBelow(ctx, dir, name); err != nil {
		return err
	}
	return removeTree(ctx, dir, name)
}

// openBelow opens a path below dir without following any link. Paths with ".."
// that lead out of dir are refused.
func openBelow(dir *os.File, path string, flags, resolve uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), path, &unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
