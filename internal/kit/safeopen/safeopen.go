// Package safeopen opens files below a directory that pods can write to, without ever leaving that
// directory: a pod may replace any directory with a link, and back, while a path is being walked.
//
// The kernel walks the path (openat2 with RESOLVE_BENEATH, Linux 5.6). If the kernel can't, or a seccomp filter
// forbids it, this package walks the path, one open directory at a time, with the same result.
//
// Opening a device may act on it, and opening a FIFO waits for its other end. So only regular files and directories
// are opened for use; other files can be opened with O_PATH only. The caller passes the directory itself as an open
// file; the directory and its own path are trusted. Everything is safe for concurrent use.
package safeopen

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscapes is wrapped by the error of a path that is refused, as opposed to missing. The path leads out of the
// directory, through /proc or in circles; or it leads through a link or into another mount although that isn't allowed.
var ErrEscapes = errors.New("leads out of the directory")

// ErrSpecial is wrapped by the error for a device, a FIFO or a socket, which are never opened.
var ErrSpecial = errors.New("it is neither a file nor a directory, so it is not opened")

// attempts limits how often an operation is tried that fails because another process changes the tree at the same time.
// Without a limit, a pod could make the operation repeat for ever.
const attempts = 128

// rules restrict the walk of a path.
type rules struct {
	// links says that links are followed, as long as they stay below the directory.
	links bool
	// mounts says that other mounts below the directory are entered.
	mounts bool
	// directory and nofollow are the flags O_DIRECTORY and O_NOFOLLOW, which apply to the last element of the path.
	directory, nofollow bool
}

func rulesOf(flags int, links, mounts bool) rules {
	return rules{links: links, mounts: mounts, directory: flags&unix.O_DIRECTORY != 0,
		nofollow: flags&unix.O_NOFOLLOW != 0}
}

// Open opens path below root; "." is root itself. Links are followed as long as they stay below root, which absolute
// links never do; mounts below root are entered. flags and perm are those of open(2), perm subject to the umask.
//
// Opening doesn't wait for other processes: while another process has a lease on the file, Open fails with EAGAIN.
// Errors quote path, which a pod may have chosen, but not the path of root.
func Open(root *os.File, path string, flags int, perm uint32) (*os.File, error) {
	return open(root, path, flags, perm, rulesOf(flags, true, true))
}

// OpenNoLinks is Open, but follows no link at all; with O_PATH and O_NOFOLLOW, the path may end with a link, which is
// opened itself. The path may be longer than the kernel accepts in one call.
func OpenNoLinks(root *os.File, path string, flags int, perm uint32) (*os.File, error) {
	at, path, err := closer(root, path)
	if err != nil {
		return nil, err
	}
	if at != root {
		defer at.Close()
	}
	return open(at, path, flags, perm, rulesOf(flags, false, true))
}

// OpenSameMount is Open, but enters no other mount.
func OpenSameMount(root *os.File, path string, flags int, perm uint32) (*os.File, error) {
	return open(root, path, flags, perm, rulesOf(flags, true, false))
}

// Enter opens the directory called name in root for reading. It follows no link and enters no other mount. The error
// for another mount wraps both EXDEV and ErrEscapes.
func Enter(root *os.File, name string) (*os.File, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return nil, failed(name, unix.EINVAL, rules{})
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	return open(root, name, flags, 0, rulesOf(flags, false, false))
}

// Reopen opens a file for use that was found with O_PATH. It opens only regular files and directories, no links; for a
// device, a FIFO or a socket, the error wraps ErrSpecial. Flags that create a file are ignored.
func Reopen(found *os.File, flags int) (*os.File, error) {
	return reopen(found, found.Name(), flags)
}

// Path is a path that leads the kernel directly to an open file, even after the file was moved. It is valid as long
// as the file is open.
func Path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func open(root *os.File, path string, flags int, perm uint32, r rules) (*os.File, error) {
	for range attempts {
		found, err := find(root, path, r)
		if flags&unix.O_CREAT != 0 && errors.Is(err, unix.ENOENT) {
			f, err := create(root, path, flags, perm, r)
			if errors.Is(err, unix.EEXIST) {
				continue // another process has just created the file, or it is a dangling link
			}
			return f, err
		}
		if err != nil || flags&unix.O_PATH != 0 {
			return found, err
		}
		defer found.Close()
		if flags&(unix.O_CREAT|unix.O_EXCL) == unix.O_CREAT|unix.O_EXCL {
			return nil, failed(path, unix.EEXIST, r)
		}
		return reopen(found, path, flags)
	}
	return nil, failed(path, unix.ENOENT, r)
}

// create creates a file that doesn't exist. It doesn't follow a link at the end of the path.
func create(root *os.File, path string, flags int, perm uint32, r rules) (*os.File, error) {
	dir, name := ".", path
	if slash := strings.LastIndexByte(path, '/'); slash >= 0 {
		dir, name = path[:slash+1], path[slash+1:]
	}
	if name == "" || name == "." || name == ".." {
		return nil, failed(path, unix.EISDIR, r)
	}
	parent, err := find(root, dir, rules{links: r.links, mounts: r.mounts, directory: true})
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	flags &^= unix.O_NONBLOCK // see reopen
	fd, err := unix.Openat(int(parent.Fd()), name, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return nil, failed(path, err, r)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func reopen(found *os.File, path string, flags int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(found.Fd()), &st); err != nil {
		return nil, failed(path, err, rules{})
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
	case unix.S_IFLNK:
		return nil, failed(path, unix.ELOOP, rules{})
	default:
		return nil, failed(path, ErrSpecial, rules{})
	}
	flags &^= unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := retry(func() (int, error) {
		// With O_NONBLOCK, the open doesn't wait until a lease on the file ends.
		return unix.Open(Path(found), flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, failed(path, err, rules{})
	}
	// Clear O_NONBLOCK, so that Go doesn't register the file with its poller. On a FUSE file system that hangs, the
	// registration would block all other files that are polled.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, failed(path, err, rules{})
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry repeats a call that a signal interrupts (EINTR).
func retry(call func() (int, error)) (fd int, err error) {
	for range attempts {
		if fd, err = call(); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// closer walks most of a path that is too long for one call. It returns the directory that it has reached, which the
// caller has to close unless it is root, and the rest of the path.
func closer(root *os.File, path string) (at *os.File, rest string, err error) {
	at = root
	for len(path) >= unix.PathMax || strings.Count(path, "/") > maxDepth/2 {
		cut := strings.LastIndexByte(path[:min(len(path), unix.PathMax/16)], '/')
		if cut <= 0 || strings.Contains("/"+path+"/", "/../") {
			err = failed(path, unix.ENAMETOOLONG, rules{})
			break
		}
		var next *os.File
		if next, err = find(at, path[:cut], rules{mounts: true, directory: true}); err != nil {
			break
		}
		if at != root {
			_ = at.Close() // it was only passed
		}
		at, path = next, strings.TrimLeft(path[cut:], "/")
		if path == "" {
			path = "."
		}
	}
	if err != nil && at != root {
		_ = at.Close() // it was only passed
	}
	return at, path, err
}

// refusal is why a path isn't walked to its end.
type refusal struct {
	why   string
	errno unix.Errno
}

func (r *refusal) Error() string   { return r.why }
func (r *refusal) Unwrap() []error { return []error{ErrEscapes, r.errno} }

// failed returns the error for a path, and explains the kernel's refusals.
func failed(path string, err error, r rules) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		switch {
		case errno == unix.EXDEV && !r.mounts:
			err = &refusal{"it leads out of the directory, or into something that is mounted there", errno}
		case errno == unix.EXDEV:
			err = &refusal{"it " + ErrEscapes.Error(), errno}
		case errno == unix.ELOOP && !r.links:
			err = &refusal{"there is a symbolic link in it, and links are not followed here", errno}
		case errno == unix.ELOOP:
			err = &refusal{"its symbolic links form a loop, or lead through /proc", errno}
		}
	}
	if len(path) > unix.PathMax {
		path = path[:unix.PathMax] + "..."
	}
	return fmt.Errorf("open %q: %w", path, err)
}
