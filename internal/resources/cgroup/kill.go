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
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// killIn kills the processes of one group. If it fails, the removal of the group fails, too.
func (m *Manager) killIn(dir string) {
	if tree.IsFrozen(dir) {
		_ = thaw(dir) // on cgroup v1, frozen processes don't die
	}
	killed := 0
	for _, pid := range processes(dir) {
		if pid == os.Getpid() {
			continue
		}
		if kill(dir, pid) {
			killed++
		}
	}
	if killed > 0 {
		m.log.V(0).Info("Killed processes left over in a pod's cgroup", "cgroup", dir, "processes", killed)
	}
}

// kill kills a process of this group. The pidfd ensures that the signal can't reach another process that has got the
// PID meanwhile: the process's group is checked after the pidfd was opened.
func kill(dir string, pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return slices.Contains(processes(dir), pid) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes lists the group's processes by their PIDs in this PID namespace. Processes of other PID namespaces are
// reported as 0, and omitted.
func processes(dir string) []int {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range bytes.FieldsSeq(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Thaw thaws the processes of one container of a pod, or of all its containers if container is empty: the container's
// group, the groups in it, and the pod's group. Processes that are to be terminated have to run: a frozen process
// handles no signals, on cgroup v1 not even SIGKILL. It is no error if no group is frozen.
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
		if !tree.IsFrozen(dir) {
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
	for file, value := range map[string]string{tree.FreezerState: "THAWED", tree.FreezeFile: "0"} {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file of the other cgroup version, or the group is gone
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
