package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// MountPoint is where the host's cgroups are mounted, the same as for OCI runtimes.
const MountPoint = "/sys/fs/cgroup"

// Layout describes this host's cgroup mounts.
type Layout struct {
	// V2 means cgroup v2 only.
	V2 bool
	// Mounts maps each controller to its mount point.
	Mounts map[string]string
	// All contains each hierarchy's mount point once: pods have groups in all of them.
	All []string
	// Unified is the mount point of cgroup v2, also beside v1; empty if there is none.
	Unified string
}

// FindLayout reads the mount table.
func FindLayout() (Layout, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		here := i.Mountpoint == MountPoint || filepath.Dir(i.Mountpoint) == MountPoint
		return !here || i.FSType != "cgroup" && i.FSType != "cgroup2", false
	})
	if err != nil {
		return Layout{}, fmt.Errorf("find the cgroups of this host: %w", err)
	}
	l := Layout{Mounts: map[string]string{}}
	for _, i := range infos {
		if !slices.Contains(l.All, i.Mountpoint) {
			l.All = append(l.All, i.Mountpoint)
		}
		if i.Mountpoint == MountPoint && i.FSType == "cgroup2" {
			return unified()
		}
		if i.FSType == "cgroup2" {
			l.Unified = i.Mountpoint
		} else {
			for controller := range strings.SplitSeq(i.VFSOptions, ",") {
				l.Mounts[controller] = i.Mountpoint
			}
		}
	}
	return l, nil
}

// unified returns the layout of a host with cgroup v2 only.
func unified() (Layout, error) {
	l := Layout{V2: true, Mounts: map[string]string{}, All: []string{MountPoint}, Unified: MountPoint}
	list, err := os.ReadFile(filepath.Join(MountPoint, "cgroup.controllers"))
	if err != nil {
		return Layout{}, fmt.Errorf("find the cgroup controllers of this host: %w", err)
	}
	for _, controller := range strings.Fields(string(list)) {
		l.Mounts[controller] = MountPoint
	}
	return l, nil
}

// Reader returns a reader of the counters of the host's cgroups.
func (l Layout) Reader() *counters.Reader { return counters.New(l.V2, l.Mounts) }

// Memory returns the group's memory usage, without limits.
func (l Layout) Memory(name string) (counters.Memory, error) {
	m, err := l.Reader().Memory(name)
	if err != nil {
		return counters.Memory{}, fmt.Errorf("memory used by %s: %w", name, err)
	}
	return m, nil
}
