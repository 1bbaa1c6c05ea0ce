package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is a mortal agent and what outlives it: the in-memory runtime, the directories,
// the cgroups. The agent is a process of its own that is killed with SIGKILL, so
// that nothing of it goes on; calls that it had sent and the runtime hadn't begun
// with are refused, and those under way have ended before the next agent starts.
//
// What it does passes points, by which it may be killed:
//
//	before KIND [CONTAINER], after KIND [CONTAINER]    an action, or the publication of a status
//	sent CALL, answered CALL                           a call to the runtime: not begun; done, and the answer lost
//	disk made FILE, disk removed FILE                  a file or directory has just been made, replaced or removed
//
// At "held POINT" it goes on for a while, but not with that action, before it is killed.
type world struct {
	*rig
	callLog *callLog

	mu     sync.Mutex
	agent  *mortal // nil while none lives
	calls  sync.WaitGroup
	lethal func(point string) bool
	held   bool // an effect is held, and a kill is due
	deaths []string
	passed []string // since the last forgetPassed
	story  []string
	broken string // an agent ended that wasn't killed
}

// mortal is one agent's process.
type mortal struct {
	pid   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, nil)
}

// newWorldOn makes a world whose root directory is on that disk. On a busy machine its full disks last long enough for
// an eviction, after which a pod waits for five minutes: they are switched off.
func newWorldOn(t *testing.T, disk *smallDisk) *world {
	t.Helper()
	w := &world{rig: prepareRig(t, quietDisk+"crashLoopBackOff: {maxContainerRestartPeriod: 1s}\nserializeImagePulls: false\n")}
	if disk != nil {
		disk.dir = w.path("root")
		if err := os.Mkdir(disk.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		disk.mount(t, disk.dir)
	}
	w.callLog = newCallLog(w.rig)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.path("cri.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(w.call, w.Unary), grpc.ChainStreamInterceptor(w.Stream),
		grpc.StatsHandler(senders{}), grpc.WaitForHandlers(true))
	runtimeapi.RegisterRuntimeServiceServer(server, w.Node)
	runtimeapi.RegisterImageServiceServer(server, w.Images)
	served := make(chan error, 1)
	go func() { served <- server.Serve(peers{socket}) }()
	stopWatch := w.watchDisk()
	t.Cleanup(func() {
		w.kill("the end")
		stopWatch()
		w.EndStreams()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			w.explain()
		}
	})
	return w
}

// start begins an agent's life, once nothing of the last one is under way.
func (w *world) start() {
	w.t.Helper()
	w.calls.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	logs, err := os.OpenFile(logOfMortal(w.dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer logs.Close()
	m := &mortal{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), mortalDir+"="+w.dir, "GOGC=off") // it dies young
	m.cmd.Stderr = logs
	m.stdin, err = m.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	m.pid = m.cmd.Process.Pid
	w.agent = m
	w.note("an agent starts")
	go w.attend(m, stdout)
}

// attend answers an agent's questions whether it may live on, until it doesn't.
func (w *world) attend(m *mortal, stdout io.Reader) {
	defer close(m.ended)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		n, point, ok := strings.Cut(lines.Text(), " ")
		if !ok || w.passes(m.pid, point) || w.holds(m.pid, point) {
			continue
		}
		// It may be dead by now.
		_, _ = fmt.Fprintln(m.stdin, n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agent == m {
		w.broken = "an agent ended that wasn't killed: " + m.cmd.Wait().Error()
		w.agent = nil
	}
}

// passes notes that an agent passes a point. It reports whether that agent is dead.
func (w *world) passes(pid int, point string) bool {
	if point == "" {
		return false
	}
	w.mu.Lock()
	if !w.lives(pid) {
		w.mu.Unlock()
		return true
	}
	w.note(point)
	w.passed = append(w.passed, point)
	dies := w.lethal != nil && w.lethal(point)
	w.mu.Unlock()
	if dies {
		w.killAt(pid, point)
	}
	return dies
}

// holdFor is how long an agent goes on without one of its actions.
const holdFor = 300 * time.Millisecond

// holds reports whether an agent is kept from going on from this point, and kills it later.
func (w *world) holds(pid int, point string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.lives(pid) && w.lethal != nil && w.lethal("held "+point)
	if held {
		w.held = true
		w.note("held: " + point)
		w.calls.Go(func() {
			time.Sleep(holdFor) // it may do what it likes
			w.killAt(pid, "held "+point)
		})
	}
	return held
}

// lives reports whether this agent does. w.mu is held.
func (w *world) lives(pid int) bool { return w.agent != nil && w.agent.pid == pid }

// kill ends the agent, if one lives.
func (w *world) kill(point string) {
	if pid := w.pid(); pid != 0 {
		w.killAt(pid, point)
	}
}

// pid is that of the agent that lives; 0 if none does.
func (w *world) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agent == nil {
		return 0
	}
	return w.agent.pid
}

func (w *world) killAt(pid int, point string) {
	w.mu.Lock()
	m := w.agent
	if !w.lives(pid) {
		w.mu.Unlock()
		return
	}
	w.agent, w.held = nil, false
	w.deaths = append(w.deaths, point)
	err := m.cmd.Process.Kill()
	_ = m.cmd.Wait() // it was killed
	w.note("KILLED: " + point)
	w.mu.Unlock()
	if err != nil {
		w.t.Errorf("the agent can't be killed: %v", err)
	}
}

// note adds a line to the story. w.mu is held.
func (w *world) note(line string) {
	w.story = append(w.story, time.Now().Format("05.000 ")+line)
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(fmt.Sprintf(format, args...))
}

// senders finds by a call's connection which process has sent it.
type senders struct{}

type senderKey struct{}

func (senders) TagConn(ctx context.Context, c *stats.ConnTagInfo) context.Context {
	pid, _ := strconv.Atoi(c.RemoteAddr.String())
	return context.WithValue(ctx, senderKey{}, pid)
}
func (senders) HandleConn(context.Context, stats.ConnStats)                     {}
func (senders) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (senders) HandleRPC(context.Context, stats.RPCStats)                       {}

// peers accepts connections whose remote address is the other process's number.
type peers struct{ *net.UnixListener }

func (p peers) Accept() (net.Conn, error) {
	c, err := p.AcceptUnix()
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	var who *unix.Ucred
	var whoErr error
	if err := raw.Control(func(fd uintptr) { who, whoErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || whoErr != nil {
		return nil, errors.Join(err, whoErr, c.Close())
	}
	return peer{c, &net.UnixAddr{Name: strconv.Itoa(int(who.Pid)), Net: "unix"}}, nil
}

type peer struct {
	net.Conn
	who net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.who }

var errDead = status.Error(codes.Unavailable, "its agent is dead")

// call carries out a call to the runtime, with a point before and one after it.
func (w *world) call(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	pid, _ := ctx.Value(senderKey{}).(int)
	w.mu.Lock()
	if !w.lives(pid) {
		w.mu.Unlock()
		return nil, errDead
	}
	w.calls.Add(1)
	w.mu.Unlock()
	defer w.calls.Done()
	point := path.Base(info.FullMethod)
	if r, ok := req.(*runtimeapi.ExecSyncRequest); ok {
		point += " " + r.GetCmd()[0]
	}
	if !isAction(point) {
		return next(ctx, req)
	}
	if w.passes(pid, "sent "+point) {
		return nil, errDead
	}
	resp, err := w.callLog.carryOut(ctx, req, next)
	if w.passes(pid, "answered "+point) {
		return nil, errDead
	}
	return resp, err
}

// isAction reports whether a call is part of an action; others only observe.
func isAction(call string) bool {
	switch call {
	case "RunPodSandbox", "PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox", "ImageStatus", "PullImage", "CreateContainer", "StartContainer",
		"ContainerStatus", "StopContainer", "RemoveContainer", "UpdateContainerResources", "ContainerStats":
		return true
	}
	return strings.HasPrefix(call, "ExecSync")
}

// explain logs the story of a test that failed.
func (w *world) explain() {
	w.t.Logf("deaths: %q\n%s\n%s", w.deaths, strings.Join(w.story, "\n"), w.describe())
	if logs, err := os.ReadFile(logOfMortal(w.dir)); err == nil {
		w.t.Logf("the agents' log:\n%s", logs)
	}
}
