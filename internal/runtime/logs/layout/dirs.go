package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// DirsConfig has the directories of logs and links.
type DirsConfig struct {
	// PodLogsDir has a directory for each pod, usually /var/log/pods.
	PodLogsDir string
	// LinksDir has a link for each log, usually /var/log/containers. It may contain links of other programs.
	LinksDir string
}

// Dirs creates and removes directories and links. All its state is on disk. It is safe for concurrent use by one
// caller per pod. It never leaves its two directories, whatever links they contain.
type Dirs struct {
	conf DirsConfig
}

// NewDirs returns a Dirs for these directories, which needn't exist yet.
func NewDirs(c DirsConfig) *Dirs { return &Dirs{conf: c} }

// Create creates the directory for a container's logs. An existing directory isn't an error.
func (d *Dirs) Create(p Pod, container string) error {
	if err := errors.Join(p.check(), safeopen.Check("container name", container)); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	logs, err := openOrMake(d.conf.PodLogsDir)
	if err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	defer logs.Close()
	if err := logs.MkdirAll(filepath.Join(p.directory(), container), 0o755); err != nil {
		return fmt.Errorf("make log directory in %s: %w", d.conf.PodLogsDir, err)
	}
	return nil
}

// Link creates the link to the instance's log. The log needn't exist yet. An existing link with that name is
// replaced if it leads elsewhere.
func (d *Dirs) Link(p Pod, i Instance) error {
	if err := checkInstance(p, i); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	links, err := openOrMake(d.conf.LinksDir)
	if err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	defer links.Close()
	name, target := linkName(p, i), filepath.Join(PodDir(d.conf.PodLogsDir, p), File(i.Container, i.Attempt))
	err = links.Symlink(target, name)
	if errors.Is(err, fs.ErrExist) {
		if old, err := links.Readlink(name); err == nil && old == target {
			return nil
		}
		if err = links.Remove(name); err == nil {
			err = links.Symlink(target, name)
		}
	}
	if err != nil {
		return fmt.Errorf("link log in %s: %w", d.conf.LinksDir, err)
	}
	return nil
}

// Remove removes the instance's log, its rotated files, and the link. Missing files aren't errors.
func (d *Dirs) Remove(p Pod, i Instance) error {
	if err := checkInstance(p, i); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	if err := d.unlink(p, i); err != nil {
		return err
	}
	return d.removeLogs(p, i.Container, func(attempt int) bool { return attempt == i.Attempt })
}

// Retire keeps the log of a removed instance for `kubectl logs --previous`: it removes its link, and the logs of
// all earlier instances. Missing files aren't errors.
func (d *Dirs) Retire(p Pod, i Instance) error {
	if err := checkInstance(p, i); err != nil {
		return fmt.Errorf("retire log: %w", err)
	}
	if err := d.unlink(p, i); err != nil {
		return err
	}
	return d.removeLogs(p, i.Container, func(attempt int) bool { return attempt < i.Attempt })
}

func (d *Dirs) unlink(p Pod, i Instance) error {
	err := within(d.conf.LinksDir, func(links *os.Root) error {
		return links.Remove(linkName(p, i))
	})
	if err != nil {
		return fmt.Errorf("remove link to log in %s: %w", d.conf.LinksDir, err)
	}
	return nil
}

// removeLogs removes the logs of a container, including rotated files, of each attempt for which meant returns
// true.
func (d *Dirs) removeLogs(p Pod, container string, meant func(attempt int) bool) error {
	err := within(d.conf.PodLogsDir, func(logs *os.Root) error {
		dir := filepath.Join(p.directory(), container)
		entries, err := fs.ReadDir(logs.FS(), dir)
		if err != nil {
			return err
		}
		var errs []error
		for _, e := range entries {
			if attempt, _, ok := ParseFile(e.Name()); ok && meant(attempt) {
				errs = append(errs, logs.Remove(filepath.Join(dir, e.Name())))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("remove log in %s: %w", d.conf.PodLogsDir, err)
	}
	return nil
}

// RemovePod removes all logs of the pod. Missing files aren't errors. Remove and RemoveDeadLinks remove its links.
func (d *Dirs) RemovePod(p Pod) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	err := within(d.conf.PodLogsDir, func(logs *os.Root) error { return logs.RemoveAll(p.directory()) })
	if err != nil {
		return fmt.Errorf("remove logs in %s: %w", d.conf.PodLogsDir, err)
	}
	return nil
}

// Attempts returns the number of the next instance for each container of the pod that has logs: restart counts
// continue after a reboot, or after the runtime lost its state.
func (d *Dirs) Attempts(p Pod) (map[string]int, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("look for logs: %w", err)
	}
	next := map[string]int{}
	err := d.each(p, func(_ *os.Root, container, file string) {
		if n, _, ok := ParseFile(file); ok {
			next[container] = max(next[container], n+1)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for logs in %s: %w", d.conf.PodLogsDir, err)
	}
	return next, nil
}

// Used returns how many bytes of disk the logs of each container of the pod use, including rotated files and those
// of earlier instances. Unreadable files don't count.
func (d *Dirs) Used(p Pod) map[string]int64 {
	if p.check() != nil {
		return nil
	}
	used := map[string]int64{}
	_ = d.each(p, func(logs *os.Root, container, file string) {
		info, err := logs.Lstat(filepath.Join(p.directory(), container, file))
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			used[container] += st.Blocks * 512
		}
	})
	return used
}

// each calls the function found for each file in the directories of the pod's containers; logs is the directory of all
// pods.
func (d *Dirs) each(p Pod, found func(logs *os.Root, container, file string)) error {
	return within(d.conf.PodLogsDir, func(logs *os.Root) error {
		containers, err := fs.ReadDir(logs.FS(), p.directory())
		if err != nil {
			return err
		}
		for _, c := range containers {
			if !c.IsDir() {
				continue
			}
			files, err := fs.ReadDir(logs.FS(), filepath.Join(p.directory(), c.Name()))
			if err != nil {
				return err
			}
			for _, f := range files {
				found(logs, c.Name(), f.Name())
			}
		}
		return nil
	})
}

// Orphans lists the pods that have a log directory, including pods that still exist, in the order of the
// directories' names.
func (d *Dirs) Orphans() ([]Pod, error) {
	entries, err := os.ReadDir(d.conf.PodLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pods' logs: %w", err)
	}
	var pods []Pod
	for _, e := range entries {
		if p, ok := parsePod(e.Name()); ok && e.IsDir() {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// RemoveDeadLinks removes links to logs whose directory is gone. Links that lead outside PodLogsDir belong to other
// programs. It reads the whole directory, so call it after the start and for rare cleanups only.
func (d *Dirs) RemoveDeadLinks() error {
	err := within(d.conf.LinksDir, func(links *os.Root) error {
		entries, err := fs.ReadDir(links.FS(), ".")
		if err != nil {
			return err
		}
		var errs []error
		for _, e := range entries {
			if e.Type() != fs.ModeSymlink {
				continue
			}
			target, err := links.Readlink(e.Name())
			if err != nil || !strings.HasPrefix(target, filepath.Clean(d.conf.PodLogsDir)+"/") {
				continue
			}
			// The log itself may not exist yet; its directory is created before the link.
			if _, err := os.Lstat(filepath.Dir(target)); errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, links.Remove(e.Name()))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("remove dead links in %s: %w", d.conf.LinksDir, err)
	}
	return nil
}

func checkInstance(p Pod, i Instance) error {
	err := errors.Join(p.check(), safeopen.Check("container name", i.Container), safeopen.Check("container ID", i.ID))
	if i.Attempt < 0 {
		err = errors.Join(err, fmt.Errorf("attempt %d is negative", i.Attempt))
	}
	return err
}

// within opens the directory for f. Missing files and directories aren't errors.
func within(dir string, f func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		err = f(root)
	}
	// A missing path counts as removed. The name of a pod's directory combines several names: if it exceeds the
	// file system's limit, the directory can't exist.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		return nil
	}
	return err
}

func openOrMake(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}
