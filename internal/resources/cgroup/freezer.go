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

// The files of the freezers of both versions. Each has the state that was asked for; state and events also say whether
// a group is frozen with one above it.
const (
	freezerState = "freezer.state"
	freezeFile   = "cgroup.freeze"
	eventsFile   = "cgroup.events"
)

// Frozen reports whether the processes of a pod's container don't run, since its group or one above it is frozen. Of a
// container without a group, and where the kernel has no freezer, none is.
func (m *Manager) Frozen(ctx context.Context, uid types.UID, container string) bool {
	pod, groups, err := m.freezable(ctx, uid, container)
	return err == nil && (frozen(pod) || slices.ContainsFunc(groups, frozen))
}

// Thaw lets the processes of a pod's container run that are frozen with its group, a group in it or the pod's, and of
// all the pod's containers if container is empty: what is to end has to run for that. A frozen process acts on no
// signal, on cgroup v1 not on SIGKILL either. Nothing to thaw is no error.
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

// freezable returns the directory of the pod's group where its freezer is, and those of a container, or all containers
// if it is empty. There are none where the kernel has no freezer or the pod no group.
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
	groups, err := newReader(l).ContainerGroups(name)
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

// frozen reports whether a group is frozen, by itself or with one above it, or is about to be.
func frozen(dir string) bool {
	if state, err := os.ReadFile(filepath.Join(dir, freezerState)); err == nil {
		return !bytes.Equal(bytes.TrimSpace(state), []byte("THAWED"))
	}
	asked, err := os.ReadFile(filepath.Join(dir, freezeFile))
	if err != nil {
		return false // neither: it is gone
	}
	events, err := os.ReadFile(filepath.Join(dir, eventsFile))
	return bytes.Equal(bytes.TrimSpace(asked), []byte("1")) || err == nil && bytes.Contains(events, []byte("frozen 1"))
}

// thaw thaws one group. It stays frozen with one above it that is.
func thaw(dir string) error {
	for file, value := range map[string]string{freezerState: "THAWED", freezeFile: "0"} {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is the other version's, or gone
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
