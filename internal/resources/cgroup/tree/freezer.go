package tree

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// The freezer's files: freezer.state is cgroup v1's, the others are v2's. freezer.state and cgroup.freeze contain the
// requested state. freezer.state and cgroup.events also report a group as frozen if an ancestor is.
const (
	FreezerState = "freezer.state"
	FreezeFile   = "cgroup.freeze"
	eventsFile   = "cgroup.events"
)

// Frozen reports whether the processes of a pod's container are frozen, because its group or an ancestor is. It
// returns false if the container has no group, or the kernel no freezer.
func (t *Tree) Frozen(ctx context.Context, uid types.UID, container string) bool {
	pod, groups, err := t.Freezers(ctx, uid, container)
	return err == nil && (IsFrozen(pod) || slices.ContainsFunc(groups, IsFrozen))
}

// Freezers returns the directories, in the freezer's hierarchy, of the pod's group and of one container's group, or
// all containers' groups if container is empty. They are empty if the kernel has no freezer or the pod no group.
func (t *Tree) Freezers(ctx context.Context, uid types.UID,
	container string) (pod string, containers []string, err error) {
	l, err := t.Layout(ctx)
	if err != nil {
		return "", nil, err
	}
	mount := l.Mounts["freezer"]
	if l.V2 {
		mount = MountPoint
	}
	name, err := t.PodGroup(ctx, uid)
	if mount == "" || errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	groups, err := l.Reader().ContainerGroups(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	for id, group := range groups {
		if container == "" || container == id {
			containers = append(containers, filepath.Join(mount, group))
		}
	}
	return filepath.Join(mount, name), containers, nil
}

// IsFrozen reports whether the group with this directory is frozen or freezing, by itself or by an ancestor.
func IsFrozen(dir string) bool {
	if state, err := os.ReadFile(filepath.Join(dir, FreezerState)); err == nil {
		return !bytes.Equal(bytes.TrimSpace(state), []byte("THAWED"))
	}
	asked, err := os.ReadFile(filepath.Join(dir, FreezeFile))
	if err != nil {
		return false // neither file exists: the group is gone
	}
	events, err := os.ReadFile(filepath.Join(dir, eventsFile))
	return bytes.Equal(bytes.TrimSpace(asked), []byte("1")) || err == nil && bytes.Contains(events, []byte("frozen 1"))
}
