package safeopen

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Top opens a directory of the host, to be used as root by the other functions, or another kind of file, with O_PATH.
// The path is trusted: its links are followed. If there is an automount point (autofs(5)) at the path, its file system
// is mounted.
func Top(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		// O_PATH alone doesn't trigger an automount, O_DIRECTORY does.
		return os.OpenFile(path, unix.O_PATH, 0)
	}
	return f, err
}
