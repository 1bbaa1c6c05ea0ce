package teardown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// unmountBelow unmounts everything at and below name in dir, deepest mounts first. A mount may hide other mounts, so
// unmountBelow repeats until no mount is left, or none of those left can be unmounted.
func unmountBelow(ctx context.Context, dir *os.File, name string) error {
	// The mount table contains real paths.
	real, err := os.Readlink(safeopen.Path(dir))
	if err != nil {
		return fmt.Errorf("find the real path of %s: %w", dir.Name(), err)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		list, err := mounts.List(filepath.Join(real, name))
		if err != nil {
			return err
		}
		var errs []error
		for _, m := range list {
			if err := unmount(ctx, dir, real, m.Point); err != nil {
				errs = append(errs, err)
			}
			if ctx.Err() != nil {
				return cmp.Or(errors.Join(errs...), ctx.Err())
			}
		}
		if len(errs) == len(list) {
			return errors.Join(errs...)
		}
	}
}

// unmount unmounts the topmost mount at the path point, which is below the directory dir. base is the real path of
// dir.
func unmount(ctx context.Context, dir *os.File, base, point string) error {
	rel, err := filepath.Rel(base, point)
	if err != nil {
		return err
	}
	return unmountAt(ctx, dir, rel, point)
}

// unmountAt unmounts the topmost mount at the relative path rel below the directory dir. point is the absolute path
// for errors. It waits for the unmount until the context ends.
func unmountAt(ctx context.Context, dir *os.File, rel, point string) error {
	// The goroutine needs its own descriptor: it may outlive this call, and the caller then closes dir.
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	own := os.NewFile(uintptr(fd), dir.Name())
	done := make(chan error, 1)
	go func() {
		defer own.Close()
		done <- takeOff(own, rel)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		default:
			return fmt.Errorf("unmount %q: its file system, or one on the way to it, doesn't answer; it is left as "+
				"it is: %w", point, context.Cause(ctx))
		}
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %q: %w: a process still uses it, or something is mounted on it; it is left as it "+
			"is until that ends", point, err)
	}
	if err != nil {
		return fmt.Errorf("unmount %q: %w", point, err)
	}
	return nil
}

// takeOff unmounts the topmost mount at rel. It follows no symbolic links: the path may have changed since the mount
// table was read.
func takeOff(dir *os.File, rel string) error {
	holder, err := safeopen.OpenNoLinks(dir, filepath.Dir(rel), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer holder.Close()
	return mounts.Unmount(holder, filepath.Base(rel), 0)
}
