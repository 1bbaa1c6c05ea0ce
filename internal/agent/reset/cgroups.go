package reset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// qosDirs are where pods are below kubepods, by quality of service.
var qosDirs = []string{"", "burstable", "besteffort"}

// podCgroups are the directories of our pods and containers that exist.
func (t *resetter) podCgroups(f *found) []string {
	var dirs []string
	points := orphans.Hierarchies()
	for _, point := range points {
		for uid := range f.pods {
			for _, qos := range qosDirs {
				dirs = append(dirs, filepath.Join(point, t.config.CgroupRoot, "kubepods", qos, "pod"+uid))
			}
		}
	}
	for dir := range f.cgroups {
		if id := orphans.CgroupOwner(dir); f.containers[id] && orphans.ContainerCgroup(dir, points, id) {
			dirs = append(dirs, dir)
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Lstat(dir)
		return err != nil || !info.IsDir()
	})
}

// removeCgroups removes our pods' cgroups, and those above that are empty then,
// up to the cgroup root.
func (t *resetter) removeCgroups(ctx context.Context, f *found) error {
	errs := []error{t.removeSlices(ctx, f)}
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, orphans.RemoveCgroup(dir))
	}
	root := filepath.Join("/", t.config.CgroupRoot)
	for _, point := range orphans.Hierarchies() {
		kubepods := filepath.Join(point, root, "kubepods")
		if root != "/" {
			// Below a root of its own everything is this agent's, also what nobody recorded.
			errs = append(errs, removeUnused(kubepods))
		}
		for _, qos := range slices.Backward(qosDirs) {
			errs = append(errs, removeIfEmpty(filepath.Join(kubepods, qos)))
		}
		for rel := root; rel != "/"; rel = filepath.Dir(rel) {
			errs = append(errs, removeIfEmpty(filepath.Join(point, rel)))
		}
	}
	return errors.Join(errs...)
}

// removeSlices has systemd remove the slices of our pods, and those above that are empty then.
func (t *resetter) removeSlices(ctx context.Context, f *found) error {
	if t.config.Slices == nil {
		return nil
	}
	pods, err := t.config.Slices.Orphans()
	errs := []error{err}
	for _, uid := range pods {
		if f.pods[string(uid)] {
			errs = append(errs, t.config.Slices.Remove(ctx, uid))
		}
	}
	return errors.Join(append(errs, t.config.Slices.RemoveQoSCgroups(ctx))...)
}

// removeUnused removes the cgroups below dir, and dir, in which nothing runs.
func removeUnused(dir string) error {
	var errs []error
	for _, path := range slices.Backward(orphans.Tree(dir)) {
		// A cgroup in use can't be removed (EBUSY).
		errs = append(errs, removeIfEmpty(path))
	}
	return errors.Join(errs...)
}
