package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ContainerDir is one container's log directory. A pod with a suitable hostPath volume can write there, so only
// regular files in a directory that is reached without symbolic links count as logs. Its methods may not be called
// concurrently. Errors are of type *os.PathError or wrap one, so that fs.ErrNotExist identifies missing files.
type ContainerDir struct {
	dir *os.File
}

// Open opens the directory name below root. Symbolic links in root itself are trusted.
func Open(root, name string) (*ContainerDir, error) {
	path := filepath.Join(root, name)
	top, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := retried(func() (int, error) { return unix.Openat2(int(top.Fd()), name, &how) })
	if err != nil {
		return nil, refused("open", path, err)
	}
	return &ContainerDir{dir: os.NewFile(uintptr(fd), path)}, nil
}

// Close closes the directory, but not the files that were opened in it.
func (d *ContainerDir) Close() error { return d.dir.Close() }

// Files lists the files of an instance's log, oldest first.
func (d *ContainerDir) Files(attempt int) ([]Name, error) {
	all, err := d.All()
	if err != nil {
		return nil, err
	}
	files := slices.DeleteFunc(all, func(n Name) bool { return n.Attempt != attempt })
	slices.SortFunc(files, Name.Compare)
	return files, nil
}

// All lists the files of all instances, unordered.
func (d *ContainerDir) All() ([]Name, error) {
	if _, err := d.dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := d.dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	files := make([]Name, 0, len(names))
	for _, name := range names {
		if n, ok := ParseName(name); ok {
			files = append(files, n)
		}
	}
	return files, nil
}

// Open opens a file for reading.
func (d *ContainerDir) Open(n Name) (*os.File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := d.open(n, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file, so it is not read as a log", f.Name()), f.Close())
	}
	return f, nil
}

// Create creates a file for writing, with mode 0600. It fails if the file exists.
func (d *ContainerDir) Create(n Name) (*os.File, error) {
	return d.open(n, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
}

func (d *ContainerDir) open(n Name, flags int, perm uint32) (*os.File, error) {
	path := d.path(n)
	fd, err := retried(func() (int, error) {
		return unix.Openat(d.fd(), n.String(), flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NOCTTY, perm)
	})
	if err != nil {
		return nil, refused("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Rename renames a file. It doesn't replace an existing file: the error is then fs.ErrExist.
func (d *ContainerDir) Rename(from, to Name) error {
	err := unix.Renameat2(d.fd(), from.String(), d.fd(), to.String(), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = d.renameWatchfully(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: d.path(from), New: to.String(), Err: err}
	}
	return nil
}

// renameWatchfully renames on file systems that don't support RENAME_NOREPLACE.
func (d *ContainerDir) renameWatchfully(from, to Name) error {
	var stat unix.Stat_t
	switch err := unix.Fstatat(d.fd(), to.String(), &stat, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return unix.Renameat(d.fd(), from.String(), d.fd(), to.String())
}

// Remove removes a file. A missing file isn't an error.
func (d *ContainerDir) Remove(n Name) error {
	if err := unix.Unlinkat(d.fd(), n.String(), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &os.PathError{Op: "remove", Path: d.path(n), Err: err}
	}
	return nil
}

// Sync writes the directory entries to disk, so that they survive a power failure.
func (d *ContainerDir) Sync() error { return d.dir.Sync() }

func (d *ContainerDir) fd() int { return int(d.dir.Fd()) }

func (d *ContainerDir) path(n Name) string { return filepath.Join(d.dir.Name(), n.String()) }

// retried repeats an interrupted call: openat2 returns EAGAIN if a concurrent rename disturbed its path lookup.
func retried(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func refused(op, path string, err error) error {
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s leads over a symbolic link, so it is not read as a log", path)
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// NameOf returns the current base name of an open file, after any renaming, and whether it was removed: then it
// returns its last name.
func NameOf(f *os.File) (name string, removed bool, err error) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return "", false, err
	}
	path, removed = strings.CutSuffix(path, " (deleted)")
	return filepath.Base(path), removed, nil
}
