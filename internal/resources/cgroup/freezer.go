package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// The freezer's files: freezer.state is cgroup v1's, the others are v2's. freezer.state and cgroup.freeze contain the
// requested state. freezer.state and cgroup.events also report a group as frozen if an ancestor is.
const (
	freezerState = "freezer.state"
	freezeFile   = "cgroup.freeze"
	eventsFile   = "cgroup.events"
)

// Frozen reports whether the processes of a pod's container are frozen, because its group or an ancestor is. It
// returns false if the container has no group, or the kernel no freezer.
func (m *Manager) Frozen(ctx context.Context, uid types.UID, container string) bool {
	pod, groups, err := m.freezable(ctx, uid, container)
	return err == nil && (frozen(pod) || slices.ContainsFunc(groups, frozen))
}

// Thaw thaws the processes of a pod's container, or of all its containers if container is empty: its group, the
// groups in it, and the pod's group. Processes that are to be terminated have to run: a frozen process handles no
// signals, on cgroup v1 not even SIGKILL. It is no error if none is frozen.
func (m *Manager) Thaw(ctx context.Context, uid types.UID, container string) error {
	pod, groups, err := m.freezable(ctx, uid, container)
	if err != nil {
		return fmt.Errorf("thaw the processes of pod %q: %w", uid, err)
	}
	if pod == "" {
		return nil
	}
	all := []string{pod}
	for _, g := range groups {
		below, err := groupsBelow(g)
		if err != nil {
			return fmt.Errorf("thaw the processes of pod %q: %w", uid, err)
		}
		all = append(all, below...)
	}
	for _, dir := range all {
		if !frozen(dir) {
			continue
		}
		if err := thaw(dir); err != nil {
			return fmt.Errorf("thaw the processes of pod %q: %w", uid, err)
		}
		m.log.V(0).Info("Thawed a frozen cgroup whose processes are to end", "cgroup", dir)
	}
	return nil
}

// freezable returns the directories, in the freezer's hierarchy, of the pod's group and of one container's group, or
// all containers' groups if container is empty. They are empty if the kernel has no freezer or the pod no group.
func (m *Manager) freezable(ctx context.Context, uid types.UID,
	container string) (pod string, containers []string, err error) {
	l, err := m.usable(ctx)
	if err != nil {
		return "", nil, err
	}
	mount := l.mounts["freezer"]
	if l.v2 {
		mount = cgroupfs
	}
	name, err := m.PodGroup(ctx, uid)
	if mount == "" || errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	groups, err := l.reader().ContainerGroups(name)
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

// frozen reports whether a group is frozen or freezing, by itself or by an ancestor.
func frozen(dir string) bool {
	if state, err := os.ReadFile(filepath.Join(dir, freezerState)); err == nil {
		return !bytes.Equal(bytes.TrimSpace(state), []byte("THAWED"))
	}
	asked, err := os.ReadFile(filepath.Join(dir, freezeFile))
	if err != nil {
		return false // neither file exists: the group is gone
	}
	events, err := os.ReadFile(filepath.Join(dir, eventsFile))
	return bytes.Equal(bytes.TrimSpace(asked), []byte("1")) || err == nil && bytes.Contains(events, []byte("frozen 1"))
}

// thaw thaws one group. The group stays frozen while one of its ancestors is.
func thaw(dir string) error {
	for file, value := range map[string]string{freezerState: "THAWED", freezeFile: "0"} {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the other version's file, or the group is gone
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}
