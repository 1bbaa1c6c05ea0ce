package logfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnknown says that the file system can't tell who writes to a file.
var ErrUnknown = errors.New("the file system can't tell whether a file is being written to")

// Writing reports whether any process has the file open for writing. f has to be
// open for reading only.
//
// The runtime's ReopenContainerLog returns a moment before it has let go of the old
// file: what it had buffered is still being written there. The kernel knows when that is over: it
// grants a read lease (fcntl(2), F_SETLEASE) only on a file that nobody can write to. The
// lease is given back at once.
func Writing(f *os.File) (bool, error) {
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

// NameOf returns the name, without its folder, that an open file has now, after any
// renaming, and whether it was removed: then it is the name that it had at last.
func NameOf(f *os.File) (name string, removed bool, err error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return "", false, err
	}
	path, removed = strings.CutSuffix(path, " (deleted)")
	return filepath.Base(path), removed, nil
}
