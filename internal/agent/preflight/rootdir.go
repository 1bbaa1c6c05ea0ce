package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkRootDir checks the disk that contains, or will contain, the root directory. again means that an agent has run
// there before.
func checkRootDir(root string, minFree uint64, again bool) []Problem {
	dir, st, err := diskOf(root)
	if err != nil {
		return fatal(fmt.Errorf("root directory %s: %w", root, err))
	}
	var wrong string
	switch free := st.Bavail * uint64(st.Bsize); {
	case st.Flags&unix.ST_RDONLY != 0:
		wrong = "its file system is read-only; see the kernel's log (dmesg), and mount it writable"
	case unix.Access(dir, unix.W_OK) != nil:
		wrong = fmt.Sprintf("%s can't be written to", dir)
	case free < minFree:
		wrong = fmt.Sprintf("its disk has %d MiB free and %d MiB are needed; free some space", free>>20, minFree>>20)
	case st.Files > 0 && st.Ffree == 0: // some file systems, such as btrfs, report 0 inodes
		wrong = fmt.Sprintf("its disk has no inode free, so no file can be made there; remove files (df -i %s)", dir)
	default:
		return nil
	}
	message := fmt.Sprintf("root directory %s: %s", root, wrong)
	if again {
		return []Problem{{Message: message}}
	}
	return []Problem{{Message: message + ", or choose another with --root-dir", Fatal: true}}
}

// diskOf returns the file system that contains, or will contain, root. dir is the closest existing directory on the
// path to root.
func diskOf(root string) (dir string, st unix.Statfs_t, err error) {
	if dir, err = nearest(root); err != nil {
		return "", st, err
	}
	return dir, st, unix.Statfs(dir, &st)
}

// nearest returns path or its closest existing ancestor.
func nearest(path string) (string, error) {
	for {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			return "", fmt.Errorf("%s isn't a directory", path)
		}
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return "", err
		}
		path = filepath.Dir(path)
	}
}
