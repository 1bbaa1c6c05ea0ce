package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Thaw thaws the processes of a pod's container, or of all its containers if container is empty: its group, the
// groups in it, and the pod's group. Processes that are to be terminated have to run: a frozen process handles no
// signals, on cgroup v1 not even SIGKILL. It is no error if none is frozen.
func (m *Manager) Thaw(ctx context.Context, uid types.UID, container string) error {
	pod, groups, err := m.Freezers(ctx, uid, container)
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
		if !IsFrozen(dir) {
			continue
		}
		if err := thaw(dir); err != nil {
			return fmt.Errorf("thaw the processes of pod %q: %w", uid, err)
		}
		m.log.V(0).Info("Thawed a frozen cgroup whose processes are to end", "cgroup", dir)
	}
	return nil
}

// thaw thaws one group. The group stays frozen while one of its ancestors is.
func thaw(dir string) error {
	for file, value := range map[string]string{FreezerState: "THAWED", FreezeFile: "0"} {
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
