package killtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a child may run before it counts as hanging.
const patience = time.Minute

// command is a run of the test binary. calls are the system calls that are counted in it.
type command struct {
	args, env []string
	calls     map[uint64]call
}

// result is how a child ended.
type result struct {
	// killed says that the child was killed at the requested step. step is the name of that system call.
	killed bool
	step   string
	// steps is the number of steps that the child began.
	steps int
	// done says that the child completed its work, failed that the work returned an error.
	done, failed bool
	output       string
}

func (e result) text(n int) string {
	switch {
	case e.killed:
		return fmt.Sprintf("was killed when about to take step %d, %s", n, e.step)
	case e.done:
		return fmt.Sprintf("got to its end; it takes less than %d steps", n)
	default:
		return "ended by itself"
	}
}

// tracer traces one child and the processes that the child starts. All its ptrace calls come from one thread, because
// the kernel accepts them only from the thread that traces.
type tracer struct {
	calls map[uint64]call
	// group is the child's process group: the test may have other children.
	group  int
	at     int // the step to kill at
	tids   map[int]bool
	result result
}

// trace runs the command, and kills it when it is about to take step n or reports that its work is done.
func trace(c command, n int) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	out, err := os.CreateTemp("", "killtest-output-")
	if err != nil {
		return result{}, err
	}
	defer out.Close()
	if err := os.Remove(out.Name()); err != nil {
		return result{}, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return result{}, err
	}
	defer null.Close()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess(self, append([]string{self}, c.args...), &os.ProcAttr{
		Env: c.env, Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		return result{}, fmt.Errorf("start the child: %w", err)
	}
	defer func() { _ = p.Release() }() // it is waited for below
	var late atomic.Bool
	hung := time.AfterFunc(patience, func() {
		late.Store(true)
		_ = p.Kill() // the child may have ended just now
	})
	defer hung.Stop()
	tr := &tracer{calls: c.calls, group: p.Pid, at: n, tids: map[int]bool{p.Pid: true}}
	err = tr.follow(p.Pid)
	if late.Load() {
		err = errors.Join(err, fmt.Errorf("the child took longer than %s and was killed", patience))
	}
	if _, serr := out.Seek(0, io.SeekStart); serr != nil {
		return tr.result, errors.Join(err, serr)
	}
	text, rerr := io.ReadAll(out)
	tr.result.output = string(text)
	if err = errors.Join(err, rerr); err != nil {
		return tr.result, fmt.Errorf("follow the child: %w (its output: %s)", err, text)
	}
	return tr.result, nil
}

// follow handles the stops of all traced threads until no thread is left.
func (tr *tracer) follow(pid int) error {
	var status unix.WaitStatus
	if _, err := wait(pid, &status); err != nil || !status.Stopped() {
		return fmt.Errorf("wait for the child to begin: %w (%v)", err, status)
	}
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		tr.kill()
		return errors.Join(fmt.Errorf("trace the child: %w", err), tr.drain())
	}
	if err := resume(pid, 0); err != nil {
		return err
	}
	return tr.drain()
}

func (tr *tracer) drain() error {
	for {
		var status unix.WaitStatus
		tid, err := wait(-tr.group, &status)
		if errors.Is(err, unix.ECHILD) {
			return nil
		}
		if err != nil {
			tr.kill()
			return err
		}
		if !status.Stopped() {
			delete(tr.tids, tid)
			continue
		}
		if err := tr.stopped(tid, status); err != nil {
			tr.kill()
			return errors.Join(err, tr.drain())
		}
	}
}

// stopped handles a thread that has stopped and waits for its tracer.
func (tr *tracer) stopped(tid int, status unix.WaitStatus) error {
	first := !tr.tids[tid]
	tr.tids[tid] = true
	if tr.result.killed || tr.result.done {
		tr.kill() // this also kills a process that was just being started
		return nil
	}
	signal := status.StopSignal()
	switch event := int(status) >> 16; {
	case event == unix.PTRACE_EVENT_SECCOMP:
		ended, err := tr.called(tid)
		if ended || err != nil {
			tr.kill()
			return err
		}
		signal = 0
	case event != 0, first && signal == unix.SIGSTOP:
		signal = 0 // the kernel's own notification
	}
	return resume(tid, signal)
}

// called counts a system call that is about to be made. It reports whether the child has to be killed now.
func (tr *tracer) called(tid int) (ended bool, err error) {
	nr, args, err := callOf(tid)
	if errors.Is(err, unix.ESRCH) {
		return false, nil // the thread is gone, so it makes no call
	}
	if err != nil {
		return false, fmt.Errorf("read which call thread %d makes: %w", tid, err)
	}
	if nr == unix.SYS_PRCTL && args[0] == mark {
		tr.result.done, tr.result.failed = true, args[1] != 0
		return true, nil
	}
	c, ok := tr.calls[nr]
	if !ok || c.changes != nil && !c.changes(tid, args) {
		return false, nil
	}
	tr.result.steps++
	if tr.result.steps < tr.at {
		return false, nil
	}
	tr.result.killed, tr.result.step = true, c.name
	return true, nil
}

// kill kills the child and the processes that it started. They may already be gone.
func (tr *tracer) kill() {
	for tid := range tr.tids {
		_ = unix.Kill(tid, unix.SIGKILL)
	}
}

// wait waits for the child with this PID or, if pid is negative, for a process of the process group -pid. It ignores
// children of other threads.
func wait(pid int, status *unix.WaitStatus) (int, error) {
	for {
		got, err := unix.Wait4(pid, status, unix.WALL|unix.WNOTHREAD, nil)
		if !errors.Is(err, unix.EINTR) {
			return got, err
		}
	}
}

// resume continues a stopped thread. It is no error if the thread is gone because it was killed.
func resume(tid int, signal unix.Signal) error {
	if err := unix.PtraceCont(tid, int(signal)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("let thread %d go on: %w", tid, err)
	}
	return nil
}
