package subpath

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// steps is the maximum number of steps in a call of bind. A few are enough; if more are needed, another process
// interferes.
const steps = 64

// bind mounts the file source at the mount point name in the directory holder, as the only mount there. It checks
// the current state before each step, so it continues wherever an earlier call was interrupted.
func bind(ctx context.Context, source, holder *os.File, name string) error {
	want, err := identify(source)
	if err != nil {
		return fmt.Errorf("stat the source: %w", err)
	}
	base, err := safeopen.MountID(holder)
	if err != nil {
		return err
	}
	for range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		ready, err := step(source, holder, name, want, base)
		if ready || err != nil {
			return err
		}
	}
	return errors.New("something else mounts and unmounts at its path, so it can't be mounted")
}

// step does the next step to the mount: it makes or removes the mount point, mounts or unmounts. It reports whether
// the mount is complete, so that no step was left.
func step(source, holder *os.File, name string, want thing, base uint64) (ready bool, err error) {
	at, err := safeopen.OpenNoLinks(holder, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, makePlace(holder, name, want.directory)
	}
	if err != nil {
		return false, err
	}
	defer at.Close()
	id, err := safeopen.MountID(at)
	if err != nil {
		return false, err
	}
	if id != base {
		found, err := identify(at)
		if err == nil && found == want {
			return true, nil
		}
		// Another file is mounted there, or a file that can't be identified any more. Processes that use that mount
		// keep it.
		if err := mounts.Unmount(holder, name, unix.MNT_DETACH); err != nil {
			return false, fmt.Errorf("unmount what was mounted for it before: %w", err)
		}
		return false, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return false, err
	}
	kind := st.Mode & unix.S_IFMT
	if directory := kind == unix.S_IFDIR; directory != want.directory || kind == unix.S_IFLNK {
		return false, removePlace(holder, name, directory)
	}
	// Both paths refer to open files, so symbolic links can't redirect the mount.
	if err := unix.Mount(safeopen.Path(source), safeopen.Path(at), "", unix.MS_BIND, ""); err != nil {
		return false, fmt.Errorf("mount it: %w", err)
	}
	return false, nil // the next step checks the result
}

// makePlace makes the mount point: a directory if a directory is to be mounted, otherwise a file.
func makePlace(holder *os.File, name string, directory bool) error {
	if directory {
		if err := unix.Mkdirat(int(holder.Fd()), name, 0o750); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make a directory to mount it on: %w", err)
		}
		return nil
	}
	fd, err := unix.Openat(int(holder.Fd()), name,
		unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o640)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make a file to mount it on: %w", err)
	}
	if err == nil {
		_ = unix.Close(fd) // no data was written
	}
	return nil
}

// removePlace removes a mount point of the wrong type.
func removePlace(holder *os.File, name string, directory bool) error {
	flags := 0
	if directory {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(int(holder.Fd()), name, flags); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the previous mount point: %w", err)
	}
	return nil
}

// thing identifies a file and the flags of its mount, to compare two open files.
type thing struct {
	device, inode uint64
	directory     bool
	// mount has the flags of the file's mount, such as read-only or no devices.
	mount int64
}

func identify(f *os.File) (thing, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return thing{}, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return thing{}, err
	}
	return thing{device: st.Dev, inode: st.Ino, directory: st.Mode&unix.S_IFMT == unix.S_IFDIR, mount: fs.Flags}, nil
}
