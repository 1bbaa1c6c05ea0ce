// Package child manages a containerd process that was started by this agent or an earlier one.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Process is a running containerd, identified by a pidfd: signals can't reach another process even if the process
// ID is reused.
type Process struct {
	pid   int
	pidfd *os.File
	// cmd is set if this agent is the parent, and has to reap the process.
	cmd *exec.Cmd
}

// PID returns the process ID.
func (p *Process) PID() int { return p.pid }

// MayOpen returns the process's hard limit of open files.
func (p *Process) MayOpen() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return 0, fmt.Errorf("read containerd's limit of open files: %w", err)
	}
	return limit.Max, nil
}

// Spawn starts containerd in its own session, so that neither Ctrl-C nor the agent's end affects it. env is added to
// its environment.
func Spawn(program, config, searchPath string, log *os.File, env ...string) (*Process, error) {
	pidfd := -1
	cmd := exec.Command(program, "--config", config)
	cmd.Dir = "/"
	cmd.Env = append(environment(os.Environ(), searchPath), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if err := safeopen.WithUmask(umask, cmd.Start); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	if err := allowCore(cmd.Process.Pid); err != nil { // before it starts a shim
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if pidfd < 0 {
		// Linux before 5.4. The process ID isn't reused before the process is reaped.
		fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch containerd: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
		pidfd = fd
	}
	f, err := pidfdFile(pidfd)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return &Process{pid: cmd.Process.Pid, pidfd: f, cmd: cmd}, nil
}

// umask is containerd's file mode creation mask, which containers inherit through the shims. It is the same as in a
// systemd service, whatever mask the agent has from a shell or unit. With a more restrictive mask, users in
// containers couldn't read files that containerd creates for them (resolv.conf).
const umask = 0o022

// allowCore raises containerd's core dump limit, which its shims and containers inherit, up to the hard limit.
// containerd's own unit does the same with LimitCORE=infinity. The agent itself writes no core dumps, because its
// memory contains Secrets.
func allowCore(pid int) error {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &limit)
	if err == nil && limit.Cur != limit.Max {
		limit.Cur = limit.Max
		err = unix.Prlimit(pid, unix.RLIMIT_CORE, &limit, nil)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // the process has ended, which its parent detects
		return fmt.Errorf("set containerd's limit of core dumps: %w", err)
	}
	return nil
}

// passed are the variables that containerd inherits from the agent, for access to registries. Others
// (NOTIFY_SOCKET, LISTEN_FDS, ...) would leak into shims.
var passed = map[string]bool{
	"HOME": true, "LANG": true, "TZ": true, "SSL_CERT_FILE": true, "SSL_CERT_DIR": true,
	"HTTP_PROXY": true, "HTTPS_PROXY": true, "NO_PROXY": true, "ALL_PROXY": true,
	"http_proxy": true, "https_proxy": true, "no_proxy": true, "all_proxy": true,
}

func environment(from []string, searchPath string) []string {
	env := []string{"PATH=" + searchPath}
	for _, v := range from {
		name, _, _ := bytes.Cut([]byte(v), []byte("="))
		if passed[string(name)] {
			env = append(env, v)
		}
	}
	return env
}

// Find returns the containerd that runs with this configuration file. It searches the process table, which is never
// stale, and which includes a containerd whose agent was killed right after starting it.
func Find(config string) (*Process, error) {
	pids, err := candidates(config)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // It ended meanwhile.
		}
		f, err := pidfdFile(fd)
		if err != nil {
			return nil, err
		}
		// Check again, now that the pidfd prevents reuse of the process ID.
		if isContainerd(pid, config) {
			return &Process{pid: pid, pidfd: f}, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// candidates returns the processes that look like the containerd with this configuration.
func candidates(config string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && isContainerd(pid, config) {
			parents[pid] = parentOf(pid)
		}
	}
	return eldest(parents), nil
}

// eldest returns the processes whose parent isn't among them. A program that containerd starts has containerd's
// command line between fork and exec.
func eldest(parents map[int]int) []int {
	var pids []int
	for pid, parent := range parents {
		if _, alike := parents[parent]; !alike {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// parentOf returns a process's parent; 0 if that can't be determined.
func parentOf(pid int) int {
	stat, _ := process.ReadStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return stat.Parent
}

// isContainerd reports whether the process has this process's user and the command line of Spawn.
func isContainerd(pid int, config string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
	if len(args) != 3 || filepath.Base(string(args[0])) != "containerd" || string(args[1]) != "--config" ||
		string(args[2]) != config {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

// Runs reports whether the process executes this very file; a replaced file has another inode, even under the same
// name.
func (p *Process) Runs(program string) bool {
	running, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.pid), "exe"))
	if err != nil {
		return false
	}
	installed, err := os.Stat(program)
	return err == nil && os.SameFile(running, installed)
}

// pidfdFile registers the descriptor with Go's poller, so that waiting needs no thread and can be canceled.
func pidfdFile(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("watch containerd: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Wait returns nil when the process has ended, or ctx's error if ctx ends first.
func (p *Process) Wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch containerd: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		// A deadline in the past ends the wait below. Setting it only fails on a closed file, and then there is no
		// wait.
		_ = p.pidfd.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	for {
		err := raw.Read(func(fd uintptr) bool { return ended(int(fd)) })
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("watch containerd: %w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		// The deadline is left from an earlier, canceled wait.
		if err := p.pidfd.SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("watch containerd: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// ended polls without blocking: a pidfd is readable once its process has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Reap releases the resources of an ended process, and returns the exit status. Only the parent of the process gets the
// real one.
func (p *Process) Reap() string {
	how := "it ended"
	if p.cmd != nil {
		// The error only repeats the exit status.
		_ = p.cmd.Wait()
		how = p.cmd.ProcessState.String()
	}
	// Nothing was written, so an error of Close doesn't matter.
	_ = p.pidfd.Close()
	return how
}

// Release closes the descriptor; the process continues.
func (p *Process) Release() error { return p.pidfd.Close() }

// Stop terminates containerd, and kills it when ctx ends first. Shims and containers continue.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	err := p.Wait(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("containerd (pid %d) didn't stop, so it is killed: %w", p.pid, err),
		p.signal(unix.SIGKILL), p.Wait(context.WithoutCancel(ctx)))
}

// Kill kills containerd. Shims and containers continue. Wait returns when containerd has ended.
func (p *Process) Kill() error { return p.signal(unix.SIGKILL) }

func (p *Process) signal(sig unix.Signal) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("signal containerd: %w", err)
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return fmt.Errorf("signal containerd: %w", err)
	}
	if sent != nil && !errors.Is(sent, unix.ESRCH) {
		return fmt.Errorf("signal containerd (pid %d): %w", p.pid, sent)
	}
	return nil
}
