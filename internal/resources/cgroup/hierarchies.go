package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// needed are the controllers for pods' limits.
var needed = [...]string{"cpu", "memory"}

// hierarchies are the host's cgroup mounts in which the agent creates groups.
type hierarchies struct {
	tree.Layout
	// used are the controllers of the files that this agent writes.
	used []string
}

// find returns the hierarchies. It is called once: the layout can't change while pods run.
func (m *Manager) find() (hierarchies, error) {
	layout, err := m.Layout(context.Background())
	if err != nil {
		return hierarchies{}, err
	}
	l := hierarchies{Layout: layout, used: needed[:]}
	m.mu.Lock()
	pods := m.conf.Pods
	m.mu.Unlock()
	// On cgroup v2, a limit of all pods uses the controllers that are enabled for each pod.
	if _, ok := l.Mounts["pids"]; ok && (m.conf.PIDsLimit > 0 || l.V2 && pods != nil && pods.PIDs > 0) {
		l.used = append(l.used[:len(l.used):len(l.used)], "pids")
	}
	if _, ok := l.Mounts["cpuset"]; ok && l.V2 && m.conf.CPUSets {
		l.used = append(l.used[:len(l.used):len(l.used)], "cpuset")
	}
	if _, ok := l.Mounts["hugetlb"]; ok {
		l.used = append(l.used[:len(l.used):len(l.used)], "hugetlb")
	}
	return l, nil
}

// check returns the first reason why groups for pods can't be created here, in one line; nil if they can.
func (l hierarchies) check() error {
	if len(l.All) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s: boot with an init that mounts them, or run: mount -t "+
			"cgroup2 none %s", tree.MountPoint, tree.MountPoint)
	}
	for _, controller := range needed {
		dir, ok := l.Mounts[controller]
		if !ok {
			return fmt.Errorf("the kernel offers no cgroup controller %q under %s: enable it on the kernel command "+
				"line (cgroup_enable=%s)", controller, tree.MountPoint, controller)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return fmt.Errorf("can't make cgroups in %s: %w: run as root, with the cgroup file system mounted "+
				"read-write", dir, err)
		}
	}
	return nil
}

// limited returns the mount points of the hierarchies that limits are written to, each once.
func (l hierarchies) limited() []string {
	if l.V2 {
		return l.All
	}
	dirs := make([]string, 0, len(l.used))
	for _, controller := range l.used {
		if dir := l.Mounts[controller]; dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// makeGroup creates a group; made is false if it already exists.
func makeGroup(dir string) (made bool, err error) {
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, &fs.PathError{Op: "make cgroup", Path: dir, Err: err}
	} else if err != nil {
		return false, nil
	}
	return true, nil
}
