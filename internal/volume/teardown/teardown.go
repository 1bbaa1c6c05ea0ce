// Package teardown removes directories that pods could write to. Whatever names, symbolic links, depth or mounts a
// directory contains, nothing outside of it is changed.
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

// errMounted says that the walk reached a mount that it couldn't unmount.
var errMounted = errors.New("something is mounted there")

// Remove removes the tree called name in the directory parent, and unmounts all mounts in it. parent and everything
// above it are trusted, the tree isn't: no symbolic link is followed and no mount is entered. If the tree doesn't
// exist, Remove returns nil. A directory that is a mount point only in another mount namespace is removed, too: the
// kernel detaches that mount there and leaves its content alone.
//
// If a mount can't be unmounted (it is busy, or it hangs until the context ends), nothing in it is deleted, and an
// error is returned; other parts of the tree may have been removed. It is safe to call Remove again.
//
// Each unmount runs on a goroutine. If the unmount hangs until the context ends, the goroutine stays, because it can
// end only when the file system responds. Each further call may leave one more goroutine.
func Remove(ctx context.Context, parent, name string) error {
	dir, err := openParent(parent, name)
	if dir == nil || err != nil {
		return err
	}
	defer dir.Close()
	// The walk unmounts the mounts that it reaches. Reading the mount table is slow, because it grows with the
	// node's containers; it is read only if the walk can't unmount something, such as a mount with other mounts in
	// it.
	err = removeTree(ctx, dir, name)
	if !errors.Is(err, errMounted) {
		return err
	}
	if err := unmountBelow(ctx, dir, name); err != nil {
		return err
	}
	return removeTree(ctx, dir, name)
}

// openParent opens the directory that contains the tree, or returns nil if that directory doesn't exist.
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
