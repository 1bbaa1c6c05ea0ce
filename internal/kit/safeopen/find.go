package safeopen

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// kernelWalks reports whether openat2 exists and may be called. The result is cached: neither the kernel nor an
// active seccomp filter changes.
var kernelWalks = sync.OnceValue(func() bool {
	fd, err := retry(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	})
	if err != nil {
		// openat2 fails with ENOSYS on an old kernel or under a seccomp filter, and with EPERM under an old container
		// runtime's filter. After any other error, the walk of this package works as well.
		return false
	}
	_ = unix.Close(fd) // nothing was written
	return true
})

// find opens the file at path below root with O_PATH, which has no effect on devices or FIFOs.
func find(root *os.File, path string, r rules) (*os.File, error) {
	fd, err := -1, error(unix.EAGAIN)
	if kernelWalks() {
		fd, err = ask(int(root.Fd()), path, r)
	}
	// After a rename or mount anywhere on the node, the kernel fails with EAGAIN at "..", and a process may rename
	// files continuously. The walk of this package isn't affected.
	if errors.Is(err, unix.EAGAIN) {
		fd, err = walk(int(root.Fd()), path, r)
	}
	if err != nil {
		return nil, failed(path, err, r)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ask makes the kernel walk the path, with openat2.
func ask(root int, path string, r rules) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	if r.directory {
		how.Flags |= unix.O_DIRECTORY
	}
	if r.nofollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	if !r.links {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	if !r.mounts {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	for range attempts {
		if fd, err = unix.Openat2(root, path, &how); err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}
