package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// killIn kills the processes of one group. What it can't do shows when the group
// can't be removed.
func (m *Manager) killIn(dir string) {
	if frozen(dir) {
		_ = thaw(dir) // on cgroup v1 nothing dies in it before
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

// kill makes sure that the number still means a process of this group before it
// kills it: the descriptor keeps the number from being given to another meanwhile.
func kill(dir string, pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return slices.Contains(processes(dir), pid) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes lists the group's processes as this PID namespace numbers them;
// those it can't see have number 0 and are left out.
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
