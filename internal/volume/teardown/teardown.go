// Package teardown removes a folder that pods could write to: whatever names,
// links, depth or mounts they left in it, nothing outside is touched.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errMounted says that the walk came to something that is mounted.
var errMounted = errors.New("something is mounted there")

// Remove removes the tree called name in the folder parent, unmounting what is
// mounted in it. parent and everything above are trusted; nothing below it is: no link is
// followed and no mount is entered. What isn't there is no error.
//
// When something can't be unmounted (it is in use, or it hangs until the context ends), nothing of
// it is deleted and the error says so; other parts of the tree may be gone by then. Trying again is
// safe.
func Remove(ctx context.Context, parent, name string) error {
	dir, err := openParent(parent, name)
	if dir == nil || err != nil {
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

// Unmount unmounts what is mounted at and below name in the folder parent, as Remove does, and
// deletes nothing. What isn't there is no error.
//
// Both call the kernel on a goroutine that is left behind if an unmount hangs until the
// context ends, since nothing can end it then but its file system. A caller that tries
// again meanwhile may leave one more.
func Unmount(ctx context.Context, parent, name string) error {
	dir, err := openParent(parent, name)
	if dir == nil || err != nil {
		return err
	}
	defer dir.Close()
	return unmountBelow(ctx, dir, name)
}

// openParent opens the folder that the tree is in, or returns nil if it isn't there.
func openParent(parent, name string) (*os.File, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q in %s is not the name of a folder, so it is not removed", name, parent)
	}
	fd, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", parent, err)
	}
	return os.NewFile(uintptr(fd), parent), nil
}
