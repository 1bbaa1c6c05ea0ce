package cgroup

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
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Tree names and finds the groups of pods on this host. It is safe for concurrent use.
type Tree struct {
	// Driver determines how groups are named. It may change only before the first call of a method.
	Driver Driver
	root   string // the parent of kubepods, an absolute path
	memory int64  // the node's memory in bytes
	layout func() (Layout, error)
}

// NewTree returns a Tree whose root is the parent of kubepods; empty means "/". An empty driver means cgroupfs. memory
// is the node's memory in bytes. NewTree doesn't read the host's cgroups yet.
func NewTree(driver Driver, root string, memory int64) *Tree {
	return &Tree{Driver: cmp.Or(driver, DriverCgroupfs), root: path.Clean("/" + root), memory: memory,
		layout: sync.OnceValues(FindLayout)}
}

// Layout returns this host's cgroup mounts. It reads the mount table once: they can't change while pods run.
func (t *Tree) Layout() (Layout, error) { return t.layout() }

// usable returns the layout, unless ctx has ended.
func (t *Tree) usable(ctx context.Context) (Layout, error) {
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
	l, err := t.usable(ctx)
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
	l, err := t.usable(ctx)
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
