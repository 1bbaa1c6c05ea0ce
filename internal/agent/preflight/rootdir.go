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
	switch {
	case err != nil:
		return fatal(fmt.Errorf("root directory %s: %w", root, err))
	case st.Flags&unix.ST_RDONLY != 0:
		return fatal(fmt.Errorf("root directory %s: its file system is read-only; choose another with --root-dir",
			root))
	case unix.Access(dir, unix.W_OK) != nil:
		return fatal(fmt.Errorf("root directory %s: %s can't be written to; choose another with --root-dir", root, dir))
	}
	var short string
	switch free := st.Bavail * uint64(st.Bsize); {
	case free < minFree:
		short = fmt.Sprintf("its disk has %d MiB free and %d MiB are needed; free some space", free>>20, minFree>>20)
	case st.Files > 0 && st.Ffree == 0: // some file systems, such as btrfs, report 0 inodes
		short = fmt.Sprintf("its disk has no inode free, so no file can be made there; remove files (df -i %s)", dir)
	default:
		return nil
	}
	message := fmt.Sprintf("root directory %s: %s", root, short)
	if again {
		return []Problem{{Message: message}}
	}
	return []Problem{{Message: message + " or choose another with --root-dir", Fatal: true}}
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
