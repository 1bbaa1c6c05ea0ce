// Package teardown removes a directory that pods could write to: whatever names,
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

// errMounted says that the walk came to something that is mounted, and couldn't take it off.
var errMounted = errors.New("something is mounted there")

// Remove removes the tree called name in the directory parent, unmounting what is
// mounted in it. parent and everything above are trusted; nothing below it is: no link is
// followed and no mount is entered. What isn't there is no error. A directory that is a mount point in
// another mount namespace only is removed, too, which the kernel does by detaching the mount there;
// what is in the mount isn't touched.
//
// When something can't be unmounted (it is in use, or it hangs until the context ends), nothing of
// it is deleted and the error says so; other parts of the tree may be gone by then. Trying again is
// safe.
//
// The kernel is called on a goroutine that is left behind if an unmount hangs until the
// context ends, since nothing can end it then but its file system. A caller that tries
// again meanwhile may leave one more.
func Remove(ctx context.Context, parent, name string) error {
	dir, err := openParent(parent, name)
	if dir == nil || err != nil {
		return err
	}
	defer dir.Close()
	// The walk unmounts what it comes to. The mount table grows with the node's containers and is
	// slow to read: it is only looked at for what the walk can't take off by itself, such as a
	// mount that has others in it.
	err = removeTree(ctx, dir, name)
	if !errors.Is(err, errMounted) {
		return err
	}
	if err := unmountBelow(ctx, dir, name); err != nil {
		return err
	}
	return removeTree(ctx, dir, name)
}

// openParent opens the directory that the tree is in, or returns nil if it isn't there.
func openParent(parent, name string) (*os.File, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q in %s is not the name of a directory, so it is not removed", name, parent)
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
