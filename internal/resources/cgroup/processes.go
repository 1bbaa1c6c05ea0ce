package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// mostRounds is the maximum number of times that moveSystem lists the processes of the root group to find new ones.
const mostRounds = 10

// MoveProcesses moves the agent into its own group (kubeletCgroups), and the processes in the root group, except for
// kernel threads and PID 1, into the system's group (systemCgroups). It creates missing groups. The agent's child
// processes will start in its group.
func (m *Manager) MoveProcesses() error {
	if name := m.conf.Own; name != "" {
		if err := Move(name, os.Getpid()); err != nil {
			return fmt.Errorf("kubeletCgroups: %w", err)
		}
	}
	if m.conf.System == "" {
		return nil
	}
	if err := m.moveSystem(path.Clean("/" + m.conf.System)); err != nil {
		return fmt.Errorf("systemCgroups: %w", err)
	}
	return nil
}

// Move moves a process into a group of the host, which is created if it is missing.
func Move(name string, pid int) error {
	name = path.Clean("/" + name)
	layout, err := tree.Find()
	if err != nil {
		return err
	}
	l := hierarchies{Layout: layout, used: needed[:]}
	for _, mount := range l.ofProcesses() {
		if err := l.makeForProcesses(mount, name); err != nil {
			return err
		}
		if err := move(filepath.Join(mount, name), pid); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) moveSystem(name string) error {
	if name == "/" {
		return errors.New(`processes in the uppermost control group can't be moved into itself: name another one than "/"`)
	}
	l, err := m.hierarchies()
	if err != nil {
		return err
	}
	stays := map[int]bool{} // by PID, whether the move failed
	for _, mount := range l.ofProcesses() {
		if err := l.makeForProcesses(mount, name); err != nil {
			return err
		}
		// A process may start children before it is moved; these are in the root group, too.
		for range mostRounds {
			pids := slices.DeleteFunc(processes(mount), func(pid int) bool {
				return pid == 1 || stays[pid] || ofKernel(pid)
			})
			if len(pids) == 0 {
				break
			}
			for _, pid := range pids {
				err := move(filepath.Join(mount, name), pid)
				if err != nil { // for example a real-time process: the group may have no budget for such processes
					m.log.Error(err, "A process of the host stays where it is", "setting", "systemCgroups")
				}
				stays[pid] = err != nil
			}
		}
	}
	maps.DeleteFunc(stays, func(_ int, stay bool) bool { return stay })
	m.log.Info("Moved the host's processes into their control group", "cgroup", name, "processes", len(stays))
	return nil
}

// ofProcesses returns the mount points of the hierarchies that account for processes and limit them, each once.
func (l hierarchies) ofProcesses() []string {
	if l.V2 {
		return l.All
	}
	var dirs []string
	for _, controller := range [...]string{"cpu", "cpuacct", "memory", "pids"} {
		if dir := l.Mounts[controller]; dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// makeForProcesses creates a group that can contain processes: on cgroup v2, it has controllers, but doesn't enable
// any for children.
func (l hierarchies) makeForProcesses(mount, name string) error {
	if exists(filepath.Join(mount, name)) {
		return nil
	}
	if err := l.makeWithParents(mount, path.Dir(name)); err != nil {
		return err
	}
	_, err := makeGroup(filepath.Join(mount, name))
	return err
}

// move moves a process with all its threads. It is no error if the process has ended.
func move(dir string, pid int) error {
	err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	switch {
	case err == nil || errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("move process %d into %s: %w: other groups in it have controllers, and cgroup v2 then "+
			"allows no processes in it: name a group of its own, such as /system.slice/deckhand", pid, dir, err)
	}
	return fmt.Errorf("move process %d into %s: %w", pid, dir, err)
}

// ofKernel reports whether a process is a kernel thread, which has no executable, or has ended.
func ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}
