package filetree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// pin opens an entry that isn't a directory with O_PATH, without following it if it is a symbolic link: the
// descriptor refers to the same file even if the name is replaced, and opening it has no side effects. If the entry
// is gone or is a mount point, the error is one for which skips returns true.
func pin(parent int, name string) (int, error) {
	return openBelow(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
}

func openDir(parent int, name string) (int, error) { return openBelow(parent, name, dirFlags) }

// openBelow opens an entry of a directory, unless it is a mount point or a symbolic link. It does the same as
// package safeopen, but with one system call and a bare descriptor, because a tree may have millions of entries.
// flags have to contain O_DIRECTORY or O_PATH: without these, opening a device or a named pipe may have side
// effects.
func openBelow(parent int, name string, flags int) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat2(parent, name, &unix.OpenHow{
			Flags:   uint64(flags),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// Linux before 5.6, or a seccomp filter without the system call.
		return openChecked(parent, name, flags)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// openChecked is openBelow for kernels without openat2. The name is a single element, so O_NOFOLLOW protects from
// symbolic links; comparing the device numbers detects mounts. The entry is checked with O_PATH before it is
// opened, because a mounted file system may hang.
func openChecked(parent int, name string, flags int) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(parent, name, flags|unix.O_PATH, 0) })
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var here, above unix.Statx_t
	err = errors.Join(identifyFD(fd, &here), identifyFD(parent, &above))
	if err == nil && (here.Dev_major != above.Dev_major || here.Dev_minor != above.Dev_minor ||
		here.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0) {
		err = unix.EXDEV
	}
	if err == nil && flags&unix.O_PATH != 0 {
		return fd, nil
	}
	found := fd
	defer unix.Close(found)
	if err == nil {
		fd, err = retry(func() (int, error) { return unix.Open(descriptorPath(found), flags&^unix.O_NOFOLLOW, 0) })
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// identifyFD reads the device, inode and mount attributes of a descriptor, without a request to a remote file
// system.
func identifyFD(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, st)
}

// skips reports whether an error means that the entry isn't part of the tree: it vanished, was replaced, or is a
// mount point.
func skips(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EXDEV)
}

func statFD(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, st)
}

// descriptorPath returns a path that the kernel resolves to the open file.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// retry repeats calls that were interrupted, and, up to 100 times, calls that raced with a rename.
func retry(call func() (int, error)) (int, error) {
	for races := 0; ; {
		n, err := call()
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && races < 100:
			races++
		default:
			return n, err
		}
	}
}

// bufferSize is the size in bytes of a buffer for getdents: about a hundred names.
const bufferSize = 4096

// cursor reads the entries of an open directory.
type cursor struct {
	fd       int
	buf      []byte
	pos, end int
	// next is the offset of the next entry, for lseek.
	next int64
}

// read returns the next name and its type (DT_...), or io.EOF at the end.
func (c *cursor) read() (name string, kind uint8, err error) {
	for {
		if c.pos == c.end {
			n, err := retry(func() (int, error) { return unix.Getdents(c.fd, c.buf) })
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return "", 0, &os.PathError{Op: "read", Path: descriptorPath(c.fd), Err: err}
			}
			if n <= 0 { // at the end, or the directory was removed
				return "", 0, io.EOF
			}
			c.pos, c.end = 0, n
		}
		name, kind = c.parse()
		if name != "." && name != ".." && name != "" {
			return name, kind, nil
		}
	}
}

// parse removes one struct linux_dirent64 (getdents(2)) from the buffer: u64 ino, s64 offset of the next entry, u16
// length, u8 type, name.
func (c *cursor) parse() (name string, kind uint8) {
	const head = 19
	rec := c.buf[c.pos:c.end]
	if len(rec) < head {
		c.pos = c.end
		return "", 0
	}
	length := int(binary.NativeEndian.Uint16(rec[16:]))
	if length < head || length > len(rec) {
		c.pos = c.end
		return "", 0
	}
	c.next = int64(binary.NativeEndian.Uint64(rec[8:]))
	kind = rec[18]
	text := rec[head:length]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	c.pos += length
	return string(text), kind
}
