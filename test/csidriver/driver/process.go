package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Options says how a driver is started.
type Options struct {
	// Dir has the state and by default the sockets. If it is empty, the process makes one and removes it at the end.
	Dir string
	// Name is the driver's, csi.deckhand.test if empty; NodeID is node1 if empty.
	Name, NodeID string
	// Endpoint is the path of the CSI socket, Dir/csi.sock if empty.
	Endpoint string
	// Registration is the path of the socket for the node, such as ROOT/plugins_registry/NAME-reg.sock; none if empty.
	Registration string
	// Below are the directories below which the driver may mount, beside Dir. What is mounted there at the end of the test
	// is unmounted.
	Below []string
	// Capabilities of the node service, such as STAGE_UNSTAGE_VOLUME.
	Capabilities []string
	// Args are further flags.
	Args []string
	// Binary is the result of Build; if it is empty, Start builds, which takes a second.
	Binary string
}

// Process is a driver that runs, and the client of its control socket.
type Process struct {
	*Client
	Options
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // of the current cmd
}

// Build builds the driver into bin/ of the checkout and returns its path.
func Build(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == "/" {
			t.Fatal("the test doesn't run in a checkout")
		}
		dir = filepath.Dir(dir)
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "deckhand-test-csidriver.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", "bin/csidriver", "./test/csidriver")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the CSI driver: %v\n%s", err, out)
	}
	return filepath.Join(dir, "bin/csidriver")
}

// Start builds and starts a driver. At the end of the test, also if it fails, the driver is killed, and nothing is left
// of its mounts. The driver ends with the test's process, too, whose mounts are then left.
func Start(t testing.TB, o Options) *Process {
	t.Helper()
	p := &Process{Options: o}
	if p.Binary == "" {
		p.Binary = Build(t)
	}
	if p.Dir == "" {
		dir, err := os.MkdirTemp("", "deckhand-test-")
		if err != nil {
			t.Fatal(err)
		}
		p.Dir = dir
		t.Cleanup(func() {
			if len(Mounts(t, dir)) > 0 {
				return // what is mounted isn't ours to remove; Unmount has failed the test
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	if p.Name == "" {
		p.Name = "csi.deckhand.test"
	}
	if p.NodeID == "" {
		p.NodeID = "node1"
	}
	if p.Endpoint == "" {
		p.Endpoint = filepath.Join(p.Dir, "csi.sock")
	}
	p.Client = NewClient(p.controlSocket())
	t.Cleanup(func() {
		p.Kill()
		for _, dir := range append([]string{p.Dir}, p.Below...) {
			Unmount(t, dir)
		}
	})
	p.Launch(t)
	return p
}

func (p *Process) controlSocket() string { return filepath.Join(p.Dir, "control.sock") }

// Launch starts the driver again after Kill, Stop or a Rule with Kill, with the Options as they are now.
func (p *Process) Launch(t testing.TB) {
	t.Helper()
	args := []string{"--drivername", p.Name, "--nodeid", p.NodeID, "--statedir", filepath.Join(p.Dir, "state"),
		"--endpoint", "unix://" + p.Endpoint, "--control", p.controlSocket(), "--below", p.Dir, "--attended",
		"--capabilities", strings.Join(p.Capabilities, ",")}
	if p.Registration != "" {
		args = append(args, "--registration", p.Registration)
	}
	for _, dir := range p.Below {
		args = append(args, "--below", dir)
	}
	p.cmd = exec.Command(p.Binary, append(args, p.Args...)...)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	p.stdin, p.exited = stdin, exited
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(exited)
	}(p.cmd)
	if err != nil || ready != "ready\n" {
		p.Kill()
		t.Fatalf("the CSI driver ended before it was ready: %s", p.cmd.ProcessState)
	}
}

// Exited is closed when the driver's process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the driver with SIGKILL, if it still runs.
func (p *Process) Kill() { p.end(unix.SIGKILL) }

// Stop ends the driver in order: it removes its sockets.
func (p *Process) Stop() { p.end(unix.SIGTERM) }

func (p *Process) end(signal unix.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal) // it may have ended by itself
	<-p.exited
	_ = p.stdin.Close()
}

// CheckLaw fails the test for each violation of the law of calls so far, and shows the last calls for the volume.
func (p *Process) CheckLaw(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := p.State(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, v := range s.Violations {
		var before []string
		for _, c := range s.Calls {
			if c.Volume == v.Volume && c.Seq <= v.Seq {
				before = append(before, fmt.Sprintf("%4d %s %s %s: %s, left %t", c.Seq, c.Began.Format("05.000"), c.Method,
					c.Target, c.Code, c.Left))
			}
		}
		t.Errorf("the law of calls: %s: call %d: %s\n%s", v.Rule, v.Seq, v.Text,
			strings.Join(before[max(0, len(before)-10):], "\n"))
	}
}

// Mounts returns the mount points below a directory, those on top of others first.
func Mounts(t testing.TB, dir string) (points []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	mounts, err2 := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	})
	if err := errors.Join(err, err2); err != nil {
		t.Error(fmt.Errorf("read mounts: %w", err))
	}
	for _, m := range mounts {
		points = append([]string{m.Mountpoint}, points...)
	}
	return points
}

// Unmount removes all mounts below a directory.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	for _, point := range Mounts(t, dir) {
		if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("unmount %s: %v", point, err)
		}
	}
}
