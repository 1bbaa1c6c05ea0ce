package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Life is what one life of the agent is given beside the node's Options.
type Life struct {
	// Flags come behind those of the node, so they go before them.
	Flags []string
	// Env is added to the environment.
	Env []string
	// Before are shell commands that are carried out in the process that becomes the
	// agent. If one fails, it doesn't.
	Before string
	// Host are shell commands that change what the agent sees of the host. They come
	// first, in a mount namespace of its own that nothing gets out of.
	Host string
	// User is who runs the agent; 0 is root. Anybody else has no groups either.
	User uint32
}

// Ended is how the agent came to its end by itself.
type Ended struct {
	Code           int
	Stdout, Stderr string
}

func (e Ended) String() string {
	return fmt.Sprintf("exit code %d, standard output %q, standard error:\n%s", e.Code, e.Stdout, e.Stderr)
}

// StartAs is Start with what this life is given.
func (n *Node) StartAs(l Life) {
	n.t.Helper()
	n.startWith(n.command(l))
}

// StartOther starts another node agent in place of deckhand, with all its arguments.
func (n *Node) StartOther(program string, args ...string) {
	n.t.Helper()
	n.startWith(exec.Command(program, args...))
}

// Run starts the agent and waits until it ends by itself.
func (n *Node) Run(l Life) Ended {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := n.command(l)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, n.logged), io.MultiWriter(&stderr, n.logged)
	p, err := launch(cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(Deadline):
		p.kill()
		n.t.Fatalf("the agent goes on, for %s by now. It said on standard output:\n%s", Deadline, &stdout)
	}
	return Ended{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// Ends waits until the agent that was started ends by itself, and returns its exit code.
func (n *Node) Ends() int {
	n.t.Helper()
	if n.agent == nil {
		n.t.Fatal("the agent wasn't started")
	}
	select {
	case <-n.agent.done:
	case <-time.After(Deadline):
		n.t.Fatal("the agent doesn't end")
	}
	code := n.agent.cmd.ProcessState.ExitCode()
	n.agent = nil
	return code
}

// Signal sends the agent a signal.
func (n *Node) Signal(s syscall.Signal) {
	n.t.Helper()
	n.mustRun()
	if err := n.agent.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// command is the agent's command line, run as the life wants it.
func (n *Node) command(l Life) *exec.Cmd {
	flags := n.flags()
	if filepath.Base(n.binary) == "kubelet" {
		flags = flags[1:] // it has no commands
	}
	args := slices.Concat([]string{n.binary}, flags, l.Flags)
	// None of these forks: it is one process that in the end is the agent.
	if l.Host != "" || l.Before != "" {
		args = append([]string{"sh", "-euc", l.Host + "\n" + l.Before + "\nexec \"$@\"", "sh"}, args...)
	}
	if l.Host != "" {
		args = append([]string{"unshare", "--mount", "--propagation", "private"}, args...)
	}
	if n.network != "" {
		args = append([]string{"nsenter", "--net=" + n.network}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(environment(), l.Env...)
	if l.User != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: l.User, Gid: l.User}}
		n.reachable(cmd)
	}
	return cmd
}

// reachable has a program run that its user couldn't find by its path, because directories
// on the way are closed to others.
func (n *Node) reachable(cmd *exec.Cmd) {
	f, err := os.Open(cmd.Path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = f.Close() }) // it was only read
	cmd.ExtraFiles = []*os.File{f}
	cmd.Path = "/proc/self/fd/3"
}

// StartRuntime starts a containerd where --container-runtime-endpoint of RuntimeEndpoint
// expects one: to an agent that gets this count, it is somebody else's.
func (n *Node) StartRuntime() {
	n.t.Helper()
	// What supervises it has to end before it is taken down.
	n.t.Cleanup(func() { n.in.StopRun(n.t) })
	n.in.Launch(n.t)
}

// RuntimeEndpoint is where StartRuntime's runtime answers.
func (n *Node) RuntimeEndpoint() string {
	return "unix://" + filepath.Join(n.RootDir, "containerd", "containerd.sock")
}

// Children are the processes that the agent has brought about, directly or not, by
// their numbers, with their command lines.
func (n *Node) Children() map[int]string {
	out := map[int]string{}
	for _, p := range processes() {
		if p.pid == os.Getpid() || n.agent != nil && p.pid == n.PID() || !strings.Contains(p.String(), n.RootDir) && !n.inOurCgroups(p.pid) {
			continue
		}
		out[p.pid] = strings.Join(p.args, " ")
	}
	return out
}

// Untouched reports what of this node is on the host though nothing should have been made yet.
func (n *Node) Untouched() error {
	n.t.Helper()
	left := slices.Concat(n.leftProcesses(), n.leftMounts(), n.leftNetfilter(append(n.subnets(), n.in.Config.Bridge)...))
	if _, err := net.InterfaceByName(n.in.Config.Bridge); err == nil {
		left = append(left, "network interface "+n.in.Config.Bridge)
	}
	for _, dir := range cgroupDirs(n.CgroupRoot) {
		left = append(left, "control group "+dir)
	}
	for _, dir := range []string{n.PodLogs, n.LogLinks} {
		for _, name := range list(dir) {
			left = append(left, filepath.Join(dir, name))
		}
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, "\n"))
	}
	return nil
}
