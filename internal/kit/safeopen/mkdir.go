package safeopen

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MkdirAll returns the directory at path below root (O_PATH), after creating it and its parents where they are missing.
// It follows links as Open does. A dangling link stays as it is, and the error is fs.ErrNotExist. A new directory has
// exactly the permission bits perm, which may include the sticky bit, regardless of the umask, and the attributes that
// it inherits from its parent (set-group-ID, default ACLs). It belongs to this process's user.
func MkdirAll(root *os.File, path string, perm uint32) (*os.File, error) {
	// One iteration creates all missing directories, unless another process removes or replaces one meanwhile.
	for range attempts {
		f, err := openDir(root, path)
		if !errors.Is(err, unix.ENOENT) {
			return f, err
		}
		if err := makeMissing(root, path, perm); err != nil {
			return nil, err
		}
	}
	return openDir(root, path)
}

func openDir(root *os.File, path string) (*os.File, error) {
	return Open(root, path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// makeMissing creates the missing directories of path. It returns early, without an error, if another process removes a
// directory of path meanwhile.
func makeMissing(root *os.File, path string, perm uint32) error {
	holder, err := openDir(root, ".")
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close() }() // read only: a failed close loses nothing
	for end := 0; end < len(path); end++ {
		name := path[end:]
		if next := strings.IndexByte(name, '/'); next >= 0 {
			name = name[:next]
		}
		end += len(name)
		if name == "" {
			continue
		}
		// Each walk starts at root: a link may lead anywhere below root, not only below holder.
		next, err := openDir(root, path[:end])
		if errors.Is(err, unix.ENOENT) {
			if err := makeOne(holder, name, path[:end], perm); err != nil {
				return err
			}
			if next, err = openDir(root, path[:end]); errors.Is(err, unix.ENOENT) {
				return nil // the new directory, or the holder, has been removed
			}
		}
		if err != nil {
			return err
		}
		_ = holder.Close() // read only: a failed close loses nothing
		holder = next
	}
	return nil
}

// makeOne creates the directory name in holder; path is its path below root. It returns no error if another process has
// created the directory or removed the holder.
func makeOne(holder *os.File, name, path string, perm uint32) error {
	err := mkdirat(int(holder.Fd()), name, perm)
	switch {
	case errors.Is(err, unix.EEXIST) && isLink(holder, name):
		err = fmt.Errorf("a symbolic link is there that leads to nothing: %w", unix.ENOENT)
	case err == nil, errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("make the directory %q: %w", path, err)
}

func isLink(dir *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// mkdirat creates a directory with exactly these permission bits. The umask would remove bits, and a later chmod might
// change another directory that a pod has put in its place.
func mkdirat(dir int, name string, perm uint32) error {
	return WithoutUmask(func() error { return unix.Mkdirat(dir, name, perm) })
}

// WithoutUmask calls do, which makes a file or a directory, with the umask 0.
func WithoutUmask(do func() error) error { return WithUmask(0, do) }

// WithUmask calls do, which makes files or starts a process, with this umask. All threads of a process share the
// umask, so do is called on a thread that stops sharing it (CLONE_FS). No other goroutine uses that thread: it ends
// with this goroutine.
func WithUmask(mask int, do func() error) error {
	var err error
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_FS); err == nil {
			unix.Umask(mask)
			err = do()
		}
	})
	done.Wait()
	return err
}
