// Package child holds on to a containerd process: one that this agent started, or
// one that an earlier agent did.
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

// Process is a running containerd, held by a pidfd: whatever becomes of its
// number, a signal can't reach a stranger.
type Process struct {
	pid   int
	pidfd *os.File
	// cmd is set where this agent is the parent, and has to reap it.
	cmd *exec.Cmd
}

// PID is the process's number.
func (p *Process) PID() int { return p.pid }

// MayOpen is how many files the process may have open at once, at the most (its hard limit).
func (p *Process) MayOpen() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return 0, fmt.Errorf("read containerd's limit of open files: %w", err)
	}
	return limit.Max, nil
}

// Spawn starts containerd in a session of its own, so that neither Ctrl-C nor
// the agent's end reaches it, with further variables in its environment.
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
	if err := allowCore(cmd.Process.Pid); err != nil { // before there is a shim
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if pidfd < 0 {
		// Linux before 5.4. As long as it isn't reaped its number can't be another's.
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

// umask is what containers get from containerd by its shims, as from a service of systemd's, whatever that of the agent
// is: a shell's, or a unit's. A narrower one would keep users of containers from files that containerd makes for them
// (resolv.conf).
const umask = 0o022

// allowCore gives containers, which get containerd's limits by its shims, the core dumps that a containerd of its own
// unit (LimitCORE=infinity) allows, as far as this machine does. The agent itself has none: its memory holds Secrets.
func allowCore(pid int) error {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &limit)
	if err == nil && limit.Cur != limit.Max {
		limit.Cur = limit.Max
		err = unix.Prlimit(pid, unix.RLIMIT_CORE, &limit, nil)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended, which its parent learns
		return fmt.Errorf("set containerd's limit of core dumps: %w", err)
	}
	return nil
}

// passed are the variables that containerd gets from the agent: where to find
// registries. Others (NOTIFY_SOCKET, LISTEN_FDS, ...) would leak into shims.
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

// Find finds the containerd that runs with this configuration file. The
// process table is the record: it can't be stale, and it also knows a containerd
// whose agent was killed right after starting it.
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
		// Asked again, now that the pidfd keeps the number from meaning another process.
		if isContainerd(pid, config) {
			return &Process{pid: pid, pidfd: f}, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// candidates are the processes that look like the containerd with this configuration.
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

// eldest are the processes of which the parent isn't among them. A program that containerd is
// about to start is called as containerd is, from the fork until it takes its own name.
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

// parentOf is a process' parent; 0 if that isn't known.
func parentOf(pid int) int {
	stat, _ := process.ReadStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return stat.Parent
}

// isContainerd reports whether the process is root's, and was started as Spawn does.
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

// Runs reports whether the process executes this very file; a file that was
// replaced has another inode, also under the same name.
func (p *Process) Runs(program string) bool {
	running, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.pid), "exe"))
	if err != nil {
		return false
	}
	installed, err := os.Stat(program)
	return err == nil && os.SameFile(running, installed)
}

// pidfdFile makes the descriptor one that Go's poller waits for, so that waiting
// costs no thread and can be given up.
func pidfdFile(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("watch containerd: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Wait returns nil when the process has ended, and ctx's error when that came first.
func (p *Process) Wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch containerd: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		// A deadline in the past ends the wait below. It can only fail on a closed
		// file, and then nobody waits.
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
		// The deadline is left from an earlier wait that was given up.
		if err := p.pidfd.SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("watch containerd: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// ended asks without waiting: a pidfd is readable once its process has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Reap frees what an ended process left, and says how it ended where that can be
// known, which is by its parent only.
func (p *Process) Reap() string {
	how := "it ended"
	if p.cmd != nil {
		// An error here only repeats the exit status.
		_ = p.cmd.Wait()
		how = p.cmd.ProcessState.String()
	}
	// Closing can't fail in a way that matters: nothing was written.
	_ = p.pidfd.Close()
	return how
}

// Release closes the descriptor; the process runs on.
func (p *Process) Release() error { return p.pidfd.Close() }

// Stop asks containerd to end, and kills it when ctx ends first. Shims and
// containers go on.
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

// Kill ends containerd without asking it. Shims and containers go on. Wait says when it has ended.
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
