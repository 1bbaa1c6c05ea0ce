package reset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// qosDirs are the directories of pods below kubepods, by QoS class.
var qosDirs = []string{"", "burstable", "besteffort"}

// podCgroups returns the existing cgroup directories of this agent's pods and containers.
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

// removeCgroups removes the cgroups of this agent's pods, and then empty parents up to the cgroup root.
func (t *resetter) removeCgroups(ctx context.Context, f *found) error {
	errs := []error{t.removeSlices(ctx, f)}
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, orphans.RemoveCgroup(dir))
	}
	root := filepath.Join("/", t.config.CgroupRoot)
	for _, point := range orphans.Hierarchies() {
		kubepods := filepath.Join(point, root, "kubepods")
		if root != "/" {
			// If the cgroup root isn't "/", everything below it belongs to this agent, even if there are no records of
			// it.
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

// removeSlices removes the pods' slices through systemd, and then empty parents.
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

// removeUnused removes dir and all cgroups below it that have no processes.
func removeUnused(dir string) error {
	var errs []error
	for _, path := range slices.Backward(orphans.Tree(dir)) {
		// A cgroup in use can't be removed (EBUSY).
		errs = append(errs, removeIfEmpty(path))
	}
	return errors.Join(errs...)
}
