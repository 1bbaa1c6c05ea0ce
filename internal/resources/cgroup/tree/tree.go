// Package tree finds this host's cgroups: the mounts of hierarchies, the names of the groups of pods, the node's
// memory, and whether a group is frozen. It changes nothing: package cgroup creates the groups, and package counters
// reads the files of one group.
package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// MountPoint is where the host's cgroups are mounted, the same as for OCI runtimes.
const MountPoint = "/sys/fs/cgroup"

// Tree names and finds the groups of pods on this host. It is safe for concurrent use.
type Tree struct {
	// Driver determines how groups are named. It may change only before the first call of a method.
	Driver Driver
	root   string // the parent of kubepods, an absolute path
	memory int64  // the node's memory in bytes
	layout func() (Layout, error)
}

// New returns a Tree whose root is the parent of kubepods; empty means "/". An empty driver means cgroupfs. memory
// is the node's memory in bytes. New doesn't read the host's cgroups yet.
func New(driver Driver, root string, memory int64) *Tree {
	return &Tree{Driver: cmp.Or(driver, DriverCgroupfs), root: path.Clean("/" + root), memory: memory,
		layout: sync.OnceValues(Find)}
}

// Layout returns this host's cgroup mounts, unless ctx has ended. It reads the mount table only once: cgroup mounts
// can't change while pods run.
func (t *Tree) Layout(ctx context.Context) (Layout, error) {
	if err := ctx.Err(); err != nil {
		return Layout{}, err
	}
	return t.layout()
}

// Version returns the version of the host's cgroups, 1 or 2; 0 if there are none.
func (t *Tree) Version() int {
	switch l, err := t.layout(); {
	case err != nil:
		return 0
	case l.V2:
		return 2
	}
	return 1
}

// Reader returns a reader of the counters of this host's cgroups.
func (t *Tree) Reader(ctx context.Context) (*counters.Reader, error) {
	l, err := t.Layout(ctx)
	if err != nil {
		return nil, err
	}
	return l.Reader(), nil
}

// PodsGroup returns the name of the group that contains all pods.
func (t *Tree) PodsGroup() string { return t.QoSCgroup(Classes[0]) }

// PodGroup returns the name of the pod's group. The error is fs.ErrNotExist if there is none.
func (t *Tree) PodGroup(ctx context.Context, uid types.UID) (string, error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return "", err
	}
	l, err := t.Layout(ctx)
	if err != nil {
		return "", err
	}
	for _, class := range Classes {
		name := t.GroupOf(class, uid)
		if unix.Access(filepath.Join(l.Mounts["memory"], name), unix.F_OK) == nil {
			return name, nil
		}
	}
	return "", &fs.PathError{Op: "look for the cgroup of pod", Path: string(uid), Err: fs.ErrNotExist}
}

// Orphans lists the pods that have a group, wanted or not.
func (t *Tree) Orphans() ([]types.UID, error) {
	l, err := t.layout()
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, class := range Classes {
		for _, mount := range l.All {
			pods, err := t.PodsIn(mount, class)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("list pods' cgroups: %w", err)
			}
			uids = append(uids, pods...)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// PodsIn lists the pods with a group in the class's QoS cgroup in the hierarchy with this mount point. The error is
// fs.ErrNotExist if there is no QoS cgroup.
func (t *Tree) PodsIn(mount string, class v1.PodQOSClass) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(mount, t.QoSCgroup(class)))
	var uids []types.UID
	for _, e := range entries {
		if uid, ok := t.uid(class, e.Name()); ok && e.IsDir() {
			uids = append(uids, uid)
		}
	}
	return uids, err
}

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

// Find reads the mount table.
func Find() (Layout, error) {
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
