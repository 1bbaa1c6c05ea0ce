package orphans

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

// dieIn is how long killed processes may take to end.
const dieIn = 10 * time.Second

// Process identifies a process. The start time distinguishes it from a later process with the same process ID.
type Process struct {
	PID int
	// Start is in clock ticks since the boot; 0 matches any process with the ID.
	Start uint64
}

// Lives reports whether the process exists and isn't a zombie. Start has to be set.
func (p Process) Lives() bool {
	s, ok := readStat(p.PID)
	return ok && s.Start == p.Start && s.State != 'Z'
}

func readStat(pid int) (process.Stat, bool) {
	return process.ReadStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
}

// numbers returns all process IDs, in /proc's order.
func numbers() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Descendants returns the children of a process, their children, and so on.
func Descendants(of Process) ([]Process, error) {
	pids, err := numbers()
	if err != nil {
		return nil, err
	}
	children := map[int][]Process{}
	for _, pid := range pids {
		if s, ok := readStat(pid); ok {
			children[s.Parent] = append(children[s.Parent], Process{pid, s.Start})
		}
	}
	var all []Process
	for next := children[of.PID]; len(next) > 0; {
		p := next[0]
		all = append(all, p)
		next = append(next[1:], children[p.PID]...)
	}
	return all, nil
}

// Kill kills processes and waits until they have ended. It spares other processes that have reused an ID.
func Kill(processes []Process) error {
	var errs []error
	var fds []unix.PollFd
	for _, p := range processes {
		fd, err := p.open()
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill %d: %w", p.PID, err))
		}
	}
	errs = append(errs, waitAll(fds))
	for _, fd := range fds {
		errs = append(errs, unix.Close(int(fd.Fd)))
	}
	return errors.Join(errs...)
}

// open returns a pidfd, or ESRCH if the process has ended.
func (p Process) open() (int, error) {
	if p.PID <= 1 {
		return -1, unix.ESRCH
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, err
	}
	// The start time is checked after opening the pidfd, because the pidfd prevents a later reuse of the ID from
	// going unnoticed.
	if p.Start != 0 && !p.Lives() {
		return -1, errors.Join(unix.ESRCH, unix.Close(fd))
	}
	return fd, nil
}

func waitAll(fds []unix.PollFd) error {
	deadline := time.Now().Add(dieIn)
	for _, fd := range fds {
		one := []unix.PollFd{fd}
		for {
			left := time.Until(deadline)
			if left <= 0 {
				return errors.New("killed processes don't end")
			}
			n, err := unix.Poll(one, int(left.Milliseconds())+1)
			if n == 1 {
				break
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
	return nil
}
