package filewatch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnknown says that the file system can't report whether a process writes to a file.
var ErrUnknown = errors.New("the file system can't tell whether a file is being written to")

// HasWriter reports whether any process has the file open for writing. f has to be
// open for reading only.
//
// The kernel grants a read lease (fcntl(2), F_SETLEASE) only on a file that nobody can write to. The lease is
// released immediately.
func HasWriter(f *os.File) (bool, error) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false, err
	case errors.Is(err, unix.EAGAIN):
		return true, nil
	}
	return false, fmt.Errorf("%w: %w", ErrUnknown, err)
}

// isWritten reports whether a process has the file at a path open for writing. It returns false if the file system
// can't report that.
func isWritten(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	written, err := HasWriter(f)
	return err == nil && written
}
