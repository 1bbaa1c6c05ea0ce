package beneath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// MkdirAll returns the folder at path below root (O_PATH), after making it and its parents
// where they are missing. Links are followed as Open does; one that leads nowhere is left as it
// is, with an error that is fs.ErrNotExist. A folder that is made has exactly the
// permission bits perm, whatever the umask, and what its parent hands down (set-group-ID,
// default ACLs); it belongs to this process's user.
func MkdirAll(root *os.File, path string, perm uint32) (*os.File, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY
	// At each turn one folder more is there, unless somebody removes it.
	for range strings.Count(path, "/") + attempts {
		f, err := Open(root, path, flags, 0)
		if !errors.Is(err, unix.ENOENT) {
			return f, err
		}
		if err := makeFirst(root, path, perm); err != nil {
			return nil, err
		}
	}
	return Open(root, path, flags, 0)
}

// makeFirst makes the first folder of path that is missing.
func makeFirst(root *os.File, path string, perm uint32) error {
	holder, err := Open(root, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close() }() // it was only looked at
	for end := 0; end < len(path); end++ {
		name := path[end:]
		if next := strings.IndexByte(name, '/'); next >= 0 {
			name = name[:next]
		}
		end += len(name)
		if name == "" {
			continue
		}
		// From the top each time: a link may lead anywhere below root, not only below holder.
		next, err := Open(root, path[:end], unix.O_PATH|unix.O_DIRECTORY, 0)
		switch {
		case errors.Is(err, unix.ENOENT):
			err := mkdirat(int(holder.Fd()), name, perm)
			if errors.Is(err, unix.EEXIST) && isLink(holder, name) {
				err = fmt.Errorf("a symbolic link is there that leads to nothing: %w", unix.ENOENT)
			} else if err == nil || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
				return nil // made, by us or others, or the holder has been removed: look again
			}
			return fmt.Errorf("make the folder %q: %w", path[:end], err)
		case err != nil:
			return err
		}
		_ = holder.Close() // it was only looked at
		holder = next
	}
	return nil
}

func isLink(dir *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// mkdirat makes a folder with exactly these permission bits. The umask takes bits away, and
// giving them back afterwards might give them to another folder, which somebody has put in
// its place. So the umask has to go, which all threads share unless one takes leave of
// the others. That one is not used for anything else: it ends with its goroutine.
func mkdirat(dir int, name string, perm uint32) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			unix.Umask(0)
			err = unix.Mkdirat(dir, name, perm)
		}
		done <- err
	}()
	return <-done
}
