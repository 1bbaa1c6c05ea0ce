package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tryDirs is the prefix of our temporary directories: dir may contain other files.
	tryDirs = ".deckhand-overlay-"
	// staleAfter is far longer than a try takes.
	staleAfter = time.Minute
)

// TryOverlay creates a small overlayfs under dir, which has to exist: some file systems don't support one even if the
// kernel does. The overlayfs isn't mounted anywhere, so it disappears when this process ends, even if it is killed.
// Only empty directories may remain, which the next try removes.
func TryOverlay(dir string) (err error) {
	removeStaleTries(dir)
	work, err := os.MkdirTemp(dir, tryDirs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("overlayfs: %w", err)
	}
	defer unix.Close(fs)
	for option, name := range map[string]string{"lowerdir": "lower", "upperdir": "upper", "workdir": "work"} {
		path := filepath.Join(work, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(fd)
		// A path in /proc is used because the directory's own path could exceed the limit of an option, 255 bytes.
		if err := unix.FsconfigSetString(fs, option, fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return fmt.Errorf("overlayfs under %s: %s: %w", dir, option, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("overlayfs under %s: %w", dir, err)
	}
	return nil
}

// removeStaleTries removes the directories of tries whose process was killed. Errors do no harm.
func removeStaleTries(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if match, _ := filepath.Match(tryDirs+"*", e.Name()); match && err == nil && e.IsDir() &&
			time.Since(info.ModTime()) > staleAfter {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
