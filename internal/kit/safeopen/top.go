package safeopen

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Top opens the directory to stay below, or another kind of file at a path of the host's, with O_PATH. The path is
// trusted: its links are followed. An automount (autofs(5)) there is mounted.
func Top(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		// Nothing is mounted by O_PATH alone: only a directory is opened for use.
		return os.OpenFile(path, unix.O_PATH, 0)
	}
	return f, err
}
