package cgroup

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

// cgroupfs is the mount point of the host's cgroups, the same as for OCI runtimes.
const cgroupfs = "/sys/fs/cgroup"

// needed are the controllers for pods' limits.
var needed = [...]string{"cpu", "memory"}

// layout describes this host's cgroup mounts.
type layout struct {
	v2 bool
	// mounts maps each controller to its mount point.
	mounts map[string]string
	// all contains each hierarchy's mount point once: pods have groups in all of them.
	all []string
	// unified is the mount point of cgroup v2, also beside v1; empty if there is none.
	unified string
	// used are the controllers of the files that this agent writes.
	used []string
}

// find reads the mount table. It is called once: the layout can't change while pods run.
func (m *Manager) find() (layout, error) {
	l, err := findLayout()
	if err != nil {
		return layout{}, err
	}
	l.used = needed[:]
	m.mu.Lock()
	pods := m.conf.Pods
	m.mu.Unlock()
	// On cgroup v2, a limit of all pods uses the controllers that are enabled for each pod.
	if _, ok := l.mounts["pids"]; ok && (m.conf.PIDsLimit > 0 || l.v2 && pods != nil && pods.PIDs > 0) {
		l.used = append(l.used[:len(l.used):len(l.used)], "pids")
	}
	if _, ok := l.mounts["hugetlb"]; ok {
		l.used = append(l.used[:len(l.used):len(l.used)], "hugetlb")
	}
	return l, nil
}

func findLayout() (layout, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		here := i.Mountpoint == cgroupfs || filepath.Dir(i.Mountpoint) == cgroupfs
		return !here || i.FSType != "cgroup" && i.FSType != "cgroup2", false
	})
	if err != nil {
		return layout{}, fmt.Errorf("find the cgroups of this host: %w", err)
	}
	l := layout{mounts: map[string]string{}}
	for _, i := range infos {
		if !slices.Contains(l.all, i.Mountpoint) {
			l.all = append(l.all, i.Mountpoint)
		}
		if i.Mountpoint == cgroupfs && i.FSType == "cgroup2" {
			return unified()
		}
		if i.FSType == "cgroup2" {
			l.unified = i.Mountpoint
		} else {
			for controller := range strings.SplitSeq(i.VFSOptions, ",") {
				l.mounts[controller] = i.Mountpoint
			}
		}
	}
	return l, nil
}

// unified returns the layout of a host with cgroup v2 only.
func unified() (layout, error) {
	l := layout{v2: true, mounts: map[string]string{}, all: []string{cgroupfs}, unified: cgroupfs}
	list, err := os.ReadFile(filepath.Join(cgroupfs, "cgroup.controllers"))
	if err != nil {
		return layout{}, fmt.Errorf("find the cgroup controllers of this host: %w", err)
	}
	for _, controller := range strings.Fields(string(list)) {
		l.mounts[controller] = cgroupfs
	}
	return l, nil
}

// check returns the first reason why groups for pods can't be created here, in one line; nil if they can.
func (l layout) check() error {
	if len(l.all) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s: boot with an init that mounts them, or run: mount -t "+
			"cgroup2 none %s", cgroupfs, cgroupfs)
	}
	for _, controller := range needed {
		dir, ok := l.mounts[controller]
		if !ok {
			return fmt.Errorf("the kernel offers no cgroup controller %q under %s: enable it on the kernel command "+
				"line (cgroup_enable=%s)", controller, cgroupfs, controller)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return fmt.Errorf("can't make cgroups in %s: %w: run as root, with the cgroup file system mounted "+
				"read-write", dir, err)
		}
	}
	return nil
}

// limited returns the mount points of the hierarchies that limits are written to, each once.
func (l layout) limited() []string {
	if l.v2 {
		return l.all
	}
	dirs := make([]string, 0, len(l.used))
	for _, controller := range l.used {
		if dir := l.mounts[controller]; dir != "" && !slices.Contains(dirs, dir) {
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
