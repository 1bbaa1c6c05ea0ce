package atomicwriter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// Modes of files and directories until they are complete: only the agent can read them.
const (
	unreadyFile = 0o600
	unreadyDir  = 0o700
)

// Modes of directories, and the bits that fsGroup adds to the modes of files.
const (
	dirMode       = 0o755
	groupDirMode  = dirMode | unix.S_ISGID
	groupFileBits = 0o440
)

// generation writes all files to a new directory, and returns its name. After an error it removes the directory.
func (w *writer) generation(ctx context.Context, want *node) (string, error) {
	name, err := w.newDir()
	if err != nil {
		return "", err
	}
	f, err := openDir(w.dir, name)
	if err == nil {
		err = w.fill(ctx, f, want)
		_ = f.Close() // a directory has no unwritten data
	}
	if err != nil {
		return "", errors.Join(w.failure("write", name, err), w.remove(context.WithoutCancel(ctx), name))
	}
	return name, nil
}

// newDir makes an empty directory with a unique name.
func (w *writer) newDir() (string, error) {
	const tries = 100
	var err error
	for range tries {
		name := fmt.Sprintf("%s%s.%d", reserved, time.Now().UTC().Format("2006_01_02_15_04_05"), rand.Uint32())
		if err = unix.Mkdirat(int(w.dir.Fd()), name, unreadyDir); err == nil {
			return name, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return "", fmt.Errorf("make a directory in %s: %w", w.dir.Name(), err)
}

// fill writes the files to the empty directory, and then sets the directory's owner and mode for readers.
func (w *writer) fill(ctx context.Context, dir *os.File, want *node) error {
	for _, name := range want.names() {
		if err := ctx.Err(); err != nil {
			return err
		}
		child := want.sub[name]
		var err error
		if child.file != nil {
			err = w.writeFile(dir, name, child.file)
		} else {
			err = w.writeDir(ctx, dir, name, child)
		}
		if err != nil {
			return err
		}
	}
	return chown(dir, w.dirOwner(), w.dirMode())
}

func (w *writer) writeDir(ctx context.Context, dir *os.File, name string, want *node) error {
	if err := unix.Mkdirat(int(dir.Fd()), name, unreadyDir); err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	f, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.fill(ctx, f, want)
}

func (w *writer) writeFile(dir *os.File, name string, want *File) error {
	f, err := openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, unreadyFile)
	if err != nil {
		return err
	}
	_, err = f.Write(want.Data)
	if err == nil {
		err = chown(f, w.fileOwner(want), w.fileMode(want))
	}
	return errors.Join(err, f.Close())
}

// owner is a user and a group.
type owner struct{ uid, gid int }

// chown sets a file's owner and then its mode: in the other order, a wrong user could open the file between the two
// calls.
func chown(f *os.File, o owner, mode uint32) error {
	if err := f.Chown(o.uid, o.gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: f.Name(), Err: err}
	}
	return nil
}

func (w *writer) dirOwner() owner {
	return owner{os.Geteuid(), ptr.Deref(w.options.Group, os.Getegid())}
}

func (w *writer) fileOwner(f *File) owner {
	o := w.dirOwner()
	if f.UID != nil {
		o.uid = int(*f.UID)
	}
	return o
}

func (w *writer) dirMode() uint32 {
	if w.options.Group != nil {
		return groupDirMode
	}
	return dirMode
}

func (w *writer) fileMode(f *File) uint32 {
	mode := f.Mode & 0o777
	if w.options.Group != nil {
		mode |= groupFileBits
	}
	return mode
}

// holds reports whether the generation consists of exactly these files, with their owners and modes. It is false if
// the generation can't be read.
func (w *writer) holds(name string, want *node) bool {
	f, err := openDir(w.dir, name)
	if err != nil {
		return false
	}
	defer f.Close()
	return w.sameDir(f, want)
}

func (w *writer) sameDir(dir *os.File, want *node) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || !matches(&st, unix.S_IFDIR|w.dirMode(), w.dirOwner()) {
		return false
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	found := 0
	for _, name := range names {
		child := want.sub[name]
		switch {
		case child == nil:
			// Runtimes create directories as mount points in the volume. Replacing the generation would detach the
			// mounts of containers there.
			if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
				st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return false
			}
			continue
		case child.file != nil && !w.sameFile(dir, name, child.file):
			return false
		case child.file == nil && !w.sameSub(dir, name, child):
			return false
		}
		found++
	}
	return found == len(want.sub)
}

func (w *writer) sameSub(dir *os.File, name string, want *node) bool {
	f, err := openDir(dir, name)
	if err != nil {
		return false
	}
	defer f.Close()
	return w.sameDir(f, want)
}

func (w *writer) sameFile(dir *os.File, name string, want *File) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	if !matches(&st, unix.S_IFREG|w.fileMode(want), w.fileOwner(want)) || st.Size != int64(len(want.Data)) {
		return false
	}
	f, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return sameBytes(f, want.Data)
}

func matches(st *unix.Stat_t, mode uint32, o owner) bool {
	return st.Mode == mode && int(st.Uid) == o.uid && int(st.Gid) == o.gid
}

func sameBytes(r io.Reader, want []byte) bool {
	buf := make([]byte, min(len(want)+1, 64<<10))
	for {
		n, err := r.Read(buf)
		if n > len(want) || !bytes.Equal(buf[:n], want[:n]) {
			return false
		}
		want = want[n:]
		if err != nil {
			return errors.Is(err, io.EOF) && len(want) == 0
		}
	}
}

// openAt opens an entry of dir, which must not be a symbolic link.
func openAt(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

func openDir(dir *os.File, name string) (*os.File, error) {
	return openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// readLink reads a link in dir. It fails with EINVAL for other types of files.
func readLink(dir *os.File, name string) (string, error) {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
