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

// othersWrite are the mode bits that permit writing to users other than the owner.
const othersWrite = 0o022

// Make creates the missing directories with their modes, whatever the umask. Existing directories keep their modes,
// which are never loosened, with these exceptions:
//
//   - If users other than the owner can write to a directory below the root, Make removes their write permission:
//     they could replace files that the agent and plugins trust.
//   - If they can write to the root or the directory of certificates, Make returns an error. A user names these
//     directories, so a shared one (/tmp) may be a mistake.
//   - A directory that belongs neither to root nor to the user of this process is an error.
//   - A file that isn't a directory is an error, and so is a symbolic link below the root. The root and the directory
//     of certificates may be links: administrators use links to move them to other disks.
//
// Make reports all errors at once, and may be called repeatedly. With the embedded runtime, embedded.Config.Claim has
// to be called before Make, because Claim marks only an empty root.
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

// makeNamed opens a directory that a user named. It creates the directory and its parents if they are missing.
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

// makeBelow creates the directory name in root, or removes other users' write permission from it.
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
	// The other bits of the mode are kept, including setgid and sticky.
	return f.Chmod(info.Mode() &^ othersWrite)
}

// openOrMake opens a directory, so that later checks and changes concern the opened directory even if another one takes
// its name. made is true if the directory didn't exist before.
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

// explain returns a better error than err if a link or a file is in place of a directory.
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

// secure sets the mode of a directory that was just created, because the umask may have removed bits from it, and
// checks the owner of any directory.
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
