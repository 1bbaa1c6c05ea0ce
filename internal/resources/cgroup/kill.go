package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// killIn kills the processes of one group. If it fails, the removal of the group fails, too.
func (m *Manager) killIn(dir string) {
	if IsFrozen(dir) {
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

// kill kills a process of this group. The pidfd makes sure that the signal doesn't reach another process that has got
// the PID meanwhile; the group is checked after the pidfd was opened.
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
