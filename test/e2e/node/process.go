package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopIn is how long an agent may take after SIGTERM. Nothing it does then
// depends on pods or on the runtime.
const stopIn = 5 * time.Second

// process is one life of the agent.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	// err is how it ended, once done is closed.
	err error
}

// Start starts the agent. It doesn't wait until it is up: awaiting what it should
// do is enough.
func (n *Node) Start() {
	n.t.Helper()
	n.StartAs(Life{})
}

func (n *Node) startWith(cmd *exec.Cmd) {
	n.t.Helper()
	if n.agent != nil {
		n.t.Fatal("the agent runs already")
	}
	cmd.Stdout, cmd.Stderr = n.logged, n.logged
	p, err := launch(cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	n.agent = p
}

// environment is this process's, without the second that the race detector sleeps
// before a program ends.
func environment() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// launch starts a program that dies with this one, so that an interrupted test
// leaves no agent behind.
func launch(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal comes when the thread that started it ends, so it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) kill() {
	// It may have ended already, which is as good.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Kill kills the agent as kill -9 does.
func (n *Node) Kill() {
	n.t.Helper()
	n.mustRun()
	n.agent.kill()
	n.agent = nil
}

// Stop stops the agent as Ctrl-C or an init system does. It fails the test unless
// it ends well and in time.
func (n *Node) Stop() {
	n.t.Helper()
	if err := n.Terminate(); err != nil {
		n.t.Errorf("the agent ended with %v", err)
	}
}

// Terminate is Stop for an agent that may be too young to have a say in how it
// ends: it returns how it did.
func (n *Node) Terminate() error {
	n.t.Helper()
	n.mustRun()
	begin := time.Now()
	if err := n.agent.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.agent.done:
	case <-time.After(Deadline):
		n.t.Fatal("the agent doesn't stop")
	}
	if took := time.Since(begin); took > stopIn {
		n.t.Errorf("the agent took %s to stop, want at most %s", took, stopIn)
	}
	err := n.agent.err
	n.agent = nil
	return err
}

// PID is the agent's process.
func (n *Node) PID() int {
	n.t.Helper()
	n.mustRun()
	return n.agent.cmd.Process.Pid
}

// mustRun fails the test when the agent has ended by itself.
func (n *Node) mustRun() {
	n.t.Helper()
	if n.agent == nil {
		n.t.Fatal("the agent wasn't started")
	}
	select {
	case <-n.agent.done:
		n.t.Fatalf("the agent ended by itself: %v", n.agent.err)
	default:
	}
}

// RunSecond starts a second agent with the same flags and returns what it said
// and its exit code once it has ended.
func (n *Node) RunSecond() (output string, code int) {
	n.t.Helper()
	return n.run(nil, n.flags()...)
}

// Deckhand runs one of the program's other commands on this node and returns what
// it said and its exit code.
func (n *Node) Deckhand(args ...string) (output string, code int) {
	n.t.Helper()
	return n.Fed(nil, args...)
}

// Fed is Deckhand with something to read on its standard input.
func (n *Node) Fed(stdin io.Reader, args ...string) (output string, code int) {
	n.t.Helper()
	return n.run(stdin, append([]string{"--root-dir", n.RootDir}, args...)...)
}

func (n *Node) run(stdin io.Reader, args ...string) (output string, code int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.binary, args...)
	cmd.Stdin, cmd.Env = stdin, environment()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// Command is one of the program's other commands on this node, which the caller runs.
func (n *Node) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.binary, append([]string{"--root-dir", n.RootDir}, args...)...)
	cmd.Env, cmd.SysProcAttr = environment(), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Foreground starts `deckhand run FILE`. Interrupt ends it as Ctrl-C does, waits
// and returns what it printed.
func (n *Node) Foreground(file string) (interrupt func() string) {
	n.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(n.binary, "--root-dir", n.RootDir, "run", file)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, environment()
	p, err := launch(cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(p.kill)
	return func() string {
		n.t.Helper()
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			n.t.Fatal(err)
		}
		select {
		case <-p.done:
		case <-time.After(Deadline):
			n.t.Fatal("deckhand run doesn't end after Ctrl-C")
		}
		return out.String()
	}
}
