package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotMounted means that a directory doesn't exist or that no tmpfs is mounted at it. After a reboot the directory
// exists without the mount.
var ErrNotMounted = errors.New("no tmpfs is mounted there")

// TmpfsOptions are the mount options of a tmpfs.
type TmpfsOptions struct {
	// Mode is the mode of the tmpfs' top directory: permission bits, set-group-ID and sticky bit.
	Mode uint32
	// GID is the group of the top directory; nil for root's.
	GID *int
	// Size is the largest size of the tmpfs in bytes, rounded up to pages; 0 for the kernel's default (half of the
	// memory).
	Size int64
}

// MountTmpfs mounts an empty tmpfs at dir. The parents of dir have to be trusted; missing parents are created. The
// tmpfs is never swapped out if the kernel supports that (Linux 6.4). If a tmpfs is already mounted at dir, it stays as
// it is, with its options.
func MountTmpfs(dir string, o TmpfsOptions) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := open(dir, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	mounted, err := isTop(parent, f)
	if mounted || err != nil {
		return err
	}
	options := fmt.Sprintf("mode=%o", o.Mode)
	if o.GID != nil {
		options += fmt.Sprintf(",gid=%d", *o.GID)
	}
	if o.Size > 0 {
		options += fmt.Sprintf(",size=%d", o.Size)
	}
	// The descriptor makes sure that the mount point is the directory that was checked.
	at := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	err = unix.Mount("tmpfs", at, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", at, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount a tmpfs (%s) at %s: %w", options, dir, err)
	}
	return nil
}

// OpenTmpfs opens the top directory of the tmpfs that is mounted at dir. Files written below this descriptor are in
// memory, even if dir is replaced meanwhile. It fails with ErrNotMounted if there is none.
func OpenTmpfs(dir string) (*os.File, error) {
	f, err := open(dir, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotMounted)
	}
	if err != nil {
		return nil, err
	}
	mounted, err := isTop(filepath.Dir(dir), f)
	if err == nil && !mounted {
		err = fmt.Errorf("%s: %w", dir, ErrNotMounted)
	}
	if err != nil {
		_ = f.Close() // the file was opened only for a check: a failed close loses nothing
		return nil, err
	}
	return f, nil
}

// open opens a directory without following a symbolic link.
func open(dir string, flags int) (*os.File, error) {
	return os.OpenFile(dir, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// isTop reports whether f, which was opened in the directory parent, is the top directory of a tmpfs. Another file
// system that is mounted there is an error. Each tmpfs has its own device number.
func isTop(parent string, f *os.File) (bool, error) {
	var above, here unix.Stat_t
	if err := unix.Stat(parent, &above); err != nil {
		return false, &fs.PathError{Op: "stat", Path: parent, Err: err}
	}
	if err := unix.Fstat(int(f.Fd()), &here); err != nil {
		return false, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if above.Dev == here.Dev {
		return false, nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	if st.Type != unix.TMPFS_MAGIC {
		return false, fmt.Errorf("%s: something is mounted there that is no tmpfs (type %#x): unmount it", f.Name(),
			st.Type)
	}
	return true, nil
}
