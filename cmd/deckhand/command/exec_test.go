package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/kit/terminal/terminaltest"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// person is one before a terminal, in a session.
type person struct {
	*terminaltest.Console
	t *testing.T
	// code is told the command's exit code, signal sends one.
	code   chan int
	signal context.CancelFunc
	// stopAgent stops the agent.
	stopAgent func()
	// run starts the command.
	run func()
}

// sitDown runs a command on a terminal, for an agent whose containers run process.
func sitDown(t *testing.T, process func(localtest.Process) (int, error), args ...string) *person {
	t.Helper()
	p := sitDownBefore(t, localtest.New(), process, args...)
	p.run()
	return p
}

// sitDownBefore has a command be run on a terminal, for this agent.
func sitDownBefore(t *testing.T, agent *localtest.Agent, process func(localtest.Process) (int, error), args ...string) *person {
	t.Helper()
	agent.OnSession = localtest.Sessions(process)
	view := jobView(v1.PodRunning, running)
	view.Pod.Spec.Containers[0].TTY, view.Pod.Spec.Containers[0].Stdin = true, true
	agent.Update(pods(view))
	root := t.TempDir()
	listener, err := socket.Listen(local.SocketPath(root))
	if err != nil {
		t.Fatal(err)
	}
	ctx, signal := context.WithCancel(t.Context())
	p := &person{Console: terminaltest.Open(t, 24, 80), t: t, code: make(chan int, 1), signal: signal, stopAgent: localtest.ServeOn(t, agent, listener, root)}
	p.run = func() {
		go func() {
			p.code <- Main(ctx, args, "deckhand", p.Terminal, p.Terminal, p.Terminal, Deps{RootDir: root, Getenv: func(string) string { return "" }})
		}()
	}
	return p
}

// leaves looks at the terminal after the command has ended.
func (p *person) leaves(code int) {
	p.t.Helper()
	if got := <-p.code; got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	p.Restored()
}

// shell prints the size of its terminal whenever that changes, and each key; it ends with the code 42 at Ctrl-D.
func shell(p localtest.Process) (int, error) {
	if !p.TTY || p.Err != nil {
		return 1, fmt.Errorf("terminal %t, standard error %v", p.TTY, p.Err)
	}
	sized := make(chan struct{})
	go func() {
		defer close(sized)
		for size := range p.Sizes {
			fmt.Fprintf(p.Out, "[%dx%d]", size.Width, size.Height)
		}
	}()
	for key := make([]byte, 1); ; {
		if _, err := io.ReadFull(p.In, key); err != nil {
			return 0, err
		}
		if key[0] == 4 {
			return 42, nil
		}
		fmt.Fprintf(p.Out, "<%d>", key[0])
	}
}

// TestExecOnATerminal: the process in the container has this terminal: each key, and its size.
func TestExecOnATerminal(t *testing.T) {
	c := sitDown(t, shell, "exec", "-it", "job", "--", "sh")
	c.Shows("[80x24]")
	c.Types("a\x03\x1a\r")
	c.Shows("<97><3><26><13>")
	c.Resize(50, 132)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	c.Shows("[132x50]")
	c.Types("\x04")
	c.Shows("command terminated with exit code 42\r\n")
	c.leaves(42)
}

// TestAttachToATerminal: who attaches to a process that has drawn its screen before has it drawn again.
func TestAttachToATerminal(t *testing.T) {
	c := sitDown(t, shell, "attach", "-it", "job")
	c.Shows("pressing enter.\r\n")
	c.Shows("[81x25]")
	c.Shows("[80x24]")
	c.Types("x")
	c.Shows("<120>")
	c.signal()
	c.leaves(130)
}

// TestDebugOnATerminal: the container that is added gets this terminal once it runs, and the command ends with its exit code.
func TestDebugOnATerminal(t *testing.T) {
	agent := localtest.New()
	c := sitDownBefore(t, agent, shell, "debug", "-it", "job", "--image", "tools:1", "-c", "debugger", "--", "sh")
	added := make(chan v1.EphemeralContainer, 1)
	become := func(s v1.ContainerState, waits ...local.Wait) {
		agent.Update(func(snapshot *local.Snapshot) {
			view := snapshot.Pods[0]
			view.Pod, view.Waits = view.Pod.DeepCopy(), waits
			view.Pod.Status.EphemeralContainerStatuses = []v1.ContainerStatus{{Name: "debugger", State: s}}
			snapshot.Pods[0] = view
		})
	}
	agent.OnAdd = func(_ types.NamespacedName, container v1.EphemeralContainer) error {
		added <- container
		return nil
	}
	c.run()
	if got := <-added; !got.Stdin || !got.TTY || got.StdinOnce {
		t.Errorf("it is %+v", got)
	}
	become(v1.ContainerState{}, local.Wait{Wait: pod.Wait{Container: "debugger"}, Text: "pulling its image"})
	c.Shows("container debugger: pulling its image\r\n")
	become(v1.ContainerState{Running: &v1.ContainerStateRunning{}})
	c.Shows("pressing enter.\r\n")
	c.Shows("[80x24]")
	c.Types("x\x04")
	c.Shows("<120>")
	become(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 42}})
	c.Shows("command terminated with exit code 42\r\n")
	c.leaves(42)
}

// TestTerminalIsRestored: however a session ends.
func TestTerminalIsRestored(t *testing.T) {
	c := sitDown(t, shell, "exec", "-it", "job", "--", "sh")
	c.Shows("[80x24]")
	c.signal()
	c.leaves(130)

	c = sitDown(t, shell, "exec", "-it", "job", "--", "sh")
	c.Shows("[80x24]")
	c.stopAgent()
	c.Shows("error: the connection to the container was lost: the agent or the container runtime has stopped, or the connection was idle for hours\r\n")
	c.leaves(1)

	c = sitDown(t, shell, "exec", "-it", "job", "--", "sh")
	c.Shows("[80x24]")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.leaves(130)
}

// TestInterruptedBeforeItBegins: what a signal has ended before there was a session is no success either.
func TestInterruptedBeforeItBegins(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodRunning, running)))
	root := localtest.Serve(t, agent)
	ctx, signal := context.WithCancel(t.Context())
	signal()
	for _, args := range []string{"exec job -- true", "attach job", "cp job:file copy", "cp exec_test.go job:file"} {
		if code := Main(ctx, strings.Fields(args), "deckhand", nil, io.Discard, io.Discard, Deps{RootDir: root, Getenv: func(string) string { return "" }}); code != 130 {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

// unread is, in the environment of TestTerminalIsRestoredWithoutReader, the root directory of an agent for the process that nobody reads.
const unread = "DECKHAND_TEST_UNREAD"

// TestTerminalIsRestoredWithoutReader: also when who reads standard output leaves, of which a process dies otherwise.
func TestTerminalIsRestoredWithoutReader(t *testing.T) {
	if root := os.Getenv(unread); root != "" {
		os.Exit(Main(t.Context(), []string{"exec", "-it", "job", "--", "sh"}, "deckhand", os.Stdin, os.Stdout, os.Stderr, Deps{RootDir: root, Getenv: func(string) string { return "" }}))
	}
	agent := localtest.New()
	agent.OnSession = localtest.Sessions(shell)
	agent.Update(pods(jobView(v1.PodRunning, running)))
	console := terminaltest.Open(t, 24, 80)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTerminalIsRestoredWithoutReader$")
	cmd.Env, cmd.Stdin = append(os.Environ(), unread+"="+localtest.Serve(t, agent)), console.Terminal
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("[80x24]"))); err != nil {
		t.Error(err)
	}
	out.Close()
	console.Types("a")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ends with %v", err)
	}
	console.Restored()
}
