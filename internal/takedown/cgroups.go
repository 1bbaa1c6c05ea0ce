package takedown

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// qosFolders are where pods are below kubepods, by quality of service.
var qosFolders = []string{"", "burstable", "besteffort"}

// hierarchies are the mount points of cgroup v2 and of every v1 controller.
func hierarchies() []string {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil
	}
	var points []string
	for _, info := range infos {
		if !slices.Contains(points, info.Mountpoint) {
			points = append(points, info.Mountpoint)
		}
	}
	return points
}

// podCgroups are the folders of our pods and containers that exist.
func (t *taker) podCgroups(f *found) []string {
	var dirs []string
	points := hierarchies()
	for _, point := range points {
		for uid := range f.pods {
			for _, qos := range qosFolders {
				dirs = append(dirs, filepath.Join(point, t.config.CgroupRoot, "kubepods", qos, "pod"+uid))
			}
		}
	}
	for dir := range f.cgroups {
		// runc names them by the container; nothing else is believed.
		inside := slices.ContainsFunc(points, func(p string) bool { return strings.HasPrefix(dir, p+"/") })
		if inside && f.containers[filepath.Base(dir)] {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Lstat(dir)
		return err != nil || !info.IsDir()
	})
}

// removeCgroups removes our pods' cgroups, and those above that are empty then,
// up to the cgroup root.
func (t *taker) removeCgroups(f *found) error {
	var errs []error
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, removeCgroup(dir))
	}
	root := filepath.Join("/", t.config.CgroupRoot)
	for _, point := range hierarchies() {
		kubepods := filepath.Join(point, root, "kubepods")
		if root != "/" {
			// Below a root of its own everything is this agent's, also what nobody recorded.
			errs = append(errs, removeUnused(kubepods))
		}
		for _, qos := range slices.Backward(qosFolders) {
			errs = append(errs, removeIfEmpty(filepath.Join(kubepods, qos)))
		}
		for rel := root; rel != "/"; rel = filepath.Dir(rel) {
			errs = append(errs, removeIfEmpty(filepath.Join(point, rel)))
		}
	}
	return errors.Join(errs...)
}

// removeUnused removes the cgroups below dir, and dir, in which nothing runs.
func removeUnused(dir string) error {
	var errs []error
	for _, path := range slices.Backward(tree(dir)) {
		// A cgroup in use can't be removed (EBUSY).
		errs = append(errs, removeIfEmpty(path))
	}
	return errors.Join(errs...)
}

// tree lists dir and the folders below it, each before those inside it.
func tree(dir string) []string {
	var all []string
	// What vanishes under way needn't be removed.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// removeCgroup removes a cgroup and those below it, innermost first.
func removeCgroup(dir string) error {
	for _, path := range slices.Backward(tree(dir)) {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the cgroup %s: %w", path, err)
		}
	}
	return nil
}
