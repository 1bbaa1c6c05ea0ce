package podlogs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/loglayout"
)

// open opens the log of one instance. A pod with the right hostPath volume can
// write below the root, so nothing but a regular file reached without any
// symbolic link is a log.
func (r *Reader) open(l Log, attempt int) (*os.File, error) {
	name := filepath.Join(loglayout.Folder(l.Namespace, l.Pod, l.UID), loglayout.File(l.Container, attempt))
	f, err := r.openBeneath(name, unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file, so it is not read as a log", f.Name())
	}
	return f, nil
}

func (r *Reader) openDir(name string) (*os.File, error) {
	return r.openBeneath(name, unix.O_DIRECTORY)
}

func (r *Reader) openBeneath(name string, flags uint64) (*os.File, error) {
	path := filepath.Join(r.root, name)
	root, err := os.OpenFile(r.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	for {
		fd, err := unix.Openat2(int(root.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		// EAGAIN is what openat2 returns when a rename elsewhere disturbed its walk.
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("%s leads over a symbolic link, so it is not read as a log", path)
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}
