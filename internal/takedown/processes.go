package takedown

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dieIn is how long killed processes may take to be gone.
const dieIn = 10 * time.Second

// killAll kills what still runs of ours: shims first, so that they start nothing
// and report to nobody, then what is in the containers.
func (t *taker) killAll(f *found) error {
	shims, err := t.shims()
	if err != nil {
		return err
	}
	for _, shim := range shims {
		f.containers[shim.id] = true
	}
	errs := []error{kill(pids(shims))}
	inits := make([]int, 0, len(f.inits))
	for _, p := range f.inits {
		if p.lives() {
			inits = append(inits, p.PID)
		}
	}
	errs = append(errs, kill(inits))
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, killCgroup(dir))
	}
	return errors.Join(errs...)
}

// shim is a running shim of ours.
type shim struct {
	pid int
	id  string
}

func pids(shims []shim) []int {
	out := make([]int, 0, len(shims))
	for _, s := range shims {
		out = append(out, s.pid)
	}
	return out
}

// shims finds the shims that report to our containerd's socket.
func (t *taker) shims() ([]shim, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []shim
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // It ended meanwhile.
		}
		if id, ok := shimID(line, t.layout.Socket()); ok {
			found = append(found, shim{pid, id})
		}
	}
	return found, nil
}

// shimID reads a shim's command line: it names containerd's socket and the
// sandbox it serves.
func shimID(cmdline []byte, socket string) (string, bool) {
	args := strings.Split(string(bytes.TrimSuffix(cmdline, []byte{0})), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return "", false
	}
	var id, address string
	for i := 1; i+1 < len(args); i++ {
		switch args[i] {
		case "-id":
			id = args[i+1]
		case "-address":
			address = args[i+1]
		}
	}
	return id, address == socket
}

// lives reports whether the process is still the one that was recorded.
func (p initProcess) lives() bool {
	if p.PID <= 1 {
		return false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
	if err != nil {
		return false
	}
	// The second field is a name in parentheses that may hold anything; the start
	// time is the 22nd (proc_pid_stat(5)).
	_, rest, ok := bytes.Cut(text[bytes.LastIndexByte(text, '(')+1:], []byte(") "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 {
		return false
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return err == nil && start == p.Start
}

// killCgroup kills every process in a cgroup and those below it.
func killCgroup(dir string) error {
	// cgroup v2 since Linux 5.14 does it at one stroke.
	if control(dir, "cgroup.kill", "1") == nil {
		return kill(members(dir))
	}
	// A frozen process can't die.
	if err := control(dir, "freezer.state", "THAWED"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Again while there are any: a process may fork as the list is read.
	deadline := time.Now().Add(dieIn)
	for {
		left := members(dir)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %d processes can't be killed", dir, len(left))
		}
		if err := kill(left); err != nil {
			return err
		}
	}
}

// control writes to a cgroup's file if it has such a file.
func control(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// members are the processes in a cgroup and below it.
func members(dir string) []int {
	var all []int
	// What vanishes under way has no members.
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for field := range strings.FieldsSeq(string(text)) {
			// 0 stands for a process of another PID namespace.
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				all = append(all, pid)
			}
		}
		return nil
	})
	return all
}

// kill kills processes and waits until they are gone.
func kill(pids []int) error {
	var errs []error
	var fds []unix.PollFd
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill %d: %w", pid, err))
		}
	}
	errs = append(errs, waitAll(fds))
	for _, fd := range fds {
		errs = append(errs, unix.Close(int(fd.Fd)))
	}
	return errors.Join(errs...)
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
