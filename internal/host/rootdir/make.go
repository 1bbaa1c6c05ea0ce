package rootdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// othersWrite are the bits of a mode that let others than the owner write.
const othersWrite = 0o022

// Make makes the directories that aren't there, whatever the umask. Directories that are
// there keep their modes, which are never loosened, with these exceptions:
//
//   - a directory below the root that others than its owner can write to is closed to
//     them, since they could replace what the agent and plugins trust;
//   - the root and the directory of certificates are refused in that case, as they are
//     what a person named, which may be a shared directory by mistake (/tmp);
//   - whatever belongs to somebody else than root (or whoever runs this) is refused;
//   - what isn't a directory is refused, and so are symbolic links below the root. The root
//     and the directory of certificates may be reached by links: disks are moved that way.
//
// It reports all problems at once, and may be called again at any time. Where the
// embedded runtime is used its Claim comes first: only that marks an empty root.
func (l Layout) Make() error {
	root, err := makeNamed(l.Root, rootMode)
	if err != nil {
		return fmt.Errorf("--root-dir %s: %w", l.Root, err)
	}
	defer root.Close()
	var errs []error
	for _, d := range below {
		if err := makeBelow(root, d.name, d.mode); err != nil {
			errs = append(errs, fmt.Errorf("directory %s: %w", filepath.Join(l.Root, d.name), err))
		}
	}
	certs, err := makeNamed(l.Certs, certsMode)
	if err != nil {
		errs = append(errs, fmt.Errorf("--cert-dir %s: %w", l.Certs, err))
	} else {
		errs = append(errs, certs.Close())
	}
	return errors.Join(errs...)
}

// makeNamed makes a directory that a person named, with those on the way to it, and
// opens it.
func makeNamed(path string, mode fs.FileMode) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, made, err := openOrMake(unix.AT_FDCWD, path, mode, 0)
	if err != nil {
		return nil, err
	}
	info, err := secure(f, made, mode)
	if err == nil && info.Mode().Perm()&othersWrite != 0 {
		err = fmt.Errorf("others can write to it (its mode is %04o): choose another directory, or run: chmod go-w %s",
			info.Mode().Perm(), path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// makeBelow makes the directory name in root, or closes it to others.
func makeBelow(root *os.File, name string, mode fs.FileMode) error {
	f, made, err := openOrMake(int(root.Fd()), name, mode, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := secure(f, made, mode)
	if err != nil || info.Mode().Perm()&othersWrite == 0 {
		return err
	}
	// The whole mode, with its setgid and sticky bits, less one thing.
	return f.Chmod(info.Mode() &^ othersWrite)
}

// openOrMake opens a directory, so that later checks and changes concern the opened one even if its name is replaced.
// made is true if it didn't exist before.
func openOrMake(at int, path string, mode fs.FileMode, flags int) (f *os.File, made bool, err error) {
	err = unix.Mkdirat(at, path, uint32(mode))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, false, err
	}
	made = err == nil
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, false, explain(at, path, err)
	}
	return os.NewFile(uintptr(fd), path), made, nil
}

// explain says what is there in place of a directory, if that is why it can't be opened.
func explain(at int, path string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(at, path, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return err
	case unix.S_IFLNK:
		return fmt.Errorf("it is a symbolic link that can't be followed here (%w): put a directory in its place; "+
			"where its files have to be elsewhere, mount that directory on it (mount --bind)", err)
	default:
		return errors.New("it isn't a directory, but must be one: move it away")
	}
}

// secure gives a directory that was just made its mode, which the umask may have kept
// from it, and checks whose an older one is.
func secure(f *os.File, made bool, mode fs.FileMode) (fs.FileInfo, error) {
	if made {
		if err := f.Chmod(mode); err != nil {
			return nil, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("it belongs to the user %d, who could change what is in it: chown root %s, after a "+
			"look at what is there", st.Uid, f.Name())
	}
	return info, nil
}
