// Package atomicfile replaces a file's content as a whole: a reader, or the next
// start after a crash, sees the old content or the new, never a mixture.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/errtext"
)

// Write replaces the file at path with data and mode perm, regardless of the umask. When it returns nil, the new
// content survives a loss of power. On error the old content is untouched. The directory has to exist, and only root
// (or the user that runs this process) may be able to write to it. A symbolic link at path is replaced, not followed.
func Write(path string, data []byte, perm fs.FileMode) error {
	if err := replace(path, data, perm, true); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteVolatile is Write for content that can be recreated: it doesn't wait for the disk. After a loss of power the
// file may be old, new, empty or missing.
func WriteVolatile(path string, data []byte, perm fs.FileMode) error {
	if err := replace(path, data, perm, false); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// File is the new content of a file while it is being written. The caller has to call Commit or Abandon.
type File struct {
	*os.File
	path string
	perm fs.FileMode
}

// Create begins to replace the file at path, as Write does, with content that is too large to hold in memory.
func Create(path string, perm fs.FileMode) (*File, error) {
	f, err := createTemp(path)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &File{f, path, perm}, nil
}

// Commit replaces the file with the written content. On error the old content is untouched.
func (f *File) Commit() error {
	err := errors.Join(f.Chmod(f.perm), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, errors.Join(err, os.Remove(f.Name())))
	}
	if err := SyncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// Abandon removes the written content; the old content is untouched.
func (f *File) Abandon() error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// createTemp creates a file in the directory of path. The file's name starts with a dot, so that programs that watch
// the directory for files skip it. CreateTemp opens with O_EXCL and 0600.
func createTemp(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
}

func replace(path string, data []byte, perm fs.FileMode, durable bool) (err error) {
	f, err := createTemp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := fill(f, data, perm, durable); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func fill(f *os.File, data []byte, perm fs.FileMode, durable bool) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return f.Sync()
}

// SyncDir makes new, renamed and removed entries of the directory durable. It doesn't cover the content of those files,
// or the directory's own name in its parent.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// DiskFull reports whether an error says that no space or no inode is left, on the file system or in the caller's
// quota. It also recognizes the text of such an error, because errors of the container runtime arrive as texts.
func DiskFull(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || SaysDiskFull(err.Error()))
}

// DiskFails reports whether an error says that a disk can't be written: it is full (DiskFull), read-only, or broken.
func DiskFails(err error) bool {
	return DiskFull(err) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO)
}

// SaysDiskFull is DiskFull for the text of an error. Strings that the text quotes are ignored.
func SaysDiskFull(text string) bool {
	text = strings.ToLower(errtext.Unquoted(text)) // the texts of C programs' errors begin with a capital letter
	return strings.Contains(text, unix.ENOSPC.Error()) || strings.Contains(text, unix.EDQUOT.Error())
}
