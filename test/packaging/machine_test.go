package packaging

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// patience is how long anything on a machine may take. It only matters to a test that fails.
const patience = 2 * time.Minute

// machine is a Debian with a real systemd in namespaces of its own: what is installed and started there, and its
// default addresses, ports and cgroups, touch nothing of this host, and end with its first process.
type machine struct {
	t *testing.T
	// home is its /root as this host sees it.
	home string
	// init is its first process, by its number here.
	init    int
	cgroups []string
}

var machines atomic.Int32

// newMachine boots one.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, home: filepath.Join(dir, "root")}
	list := filepath.Join(dir, "cgroups")
	if err := os.WriteFile(list, []byte(m.makeCgroups()), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("machine.sh")
	if err != nil {
		t.Fatal(err)
	}
	console, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = console.Close() // it was written by others
	})
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--propagation", "private",
		"--fork", "--mount-proc", "--kill-child", "sh", script, dir, list, "node1")
	cmd.Stdout, cmd.Stderr = console, console
	if err := m.launch(cmd, ""); err != nil {
		t.Fatal(err)
	}
	m.eventually("systemd runs on the machine", func() error {
		if err := m.findInit(cmd.Process.Pid); err != nil {
			text, _ := os.ReadFile(console.Name())
			return fmt.Errorf("%w\n%s", err, text)
		}
		out, _ := m.try("systemctl is-system-running") // it fails for a system that is degraded, which is as good
		if state := strings.TrimSpace(out); state != "running" && state != "degraded" {
			return fmt.Errorf("it is %q", state)
		}
		return nil
	})
	return m
}

// makeCgroups makes a cgroup for the machine in each hierarchy of this host, and returns what the machine has to mount.
func (m *machine) makeCgroups() string {
	m.t.Helper()
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) { return i.FSType != "cgroup" && i.FSType != "cgroup2", false })
	if err != nil {
		m.t.Fatal(err)
	}
	name := fmt.Sprintf("deckhand-machine-%d-%d", os.Getpid(), machines.Add(1))
	var list strings.Builder
	for _, at := range mounts {
		dir := filepath.Join(at.Mountpoint, name)
		m.cgroups = append(m.cgroups, dir)
		options := strings.TrimPrefix(strings.TrimPrefix(at.VFSOptions, "rw"), ",")
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		if at.FSType == "cgroup2" {
			options = "rw"
		}
		fmt.Fprintf(&list, "%s %s %s\n", at.FSType, options, at.Mountpoint)
	}
	m.t.Cleanup(m.removeCgroups)
	return list.String()
}

func (m *machine) removeCgroups() {
	m.eventually("the machine's cgroups go", func() error {
		var left []error
		for _, dir := range m.cgroups {
			// Deepest first. What is still in use is tried again.
			out, err := exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").CombinedOutput()
			if _, gone := os.Stat(dir); !errors.Is(gone, os.ErrNotExist) {
				left = append(left, fmt.Errorf("%w: %s", err, out))
			}
		}
		return errors.Join(left...)
	})
}

// findInit finds the first process of the machine: the child of the one that made the namespaces, once that is systemd.
func (m *machine) findInit(parent int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return err
	}
	m.init, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("it has no first process: %q", text)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", m.init))
	if name := strings.TrimSpace(string(comm)); err == nil && name != "systemd" {
		return fmt.Errorf("its first process is %s", name)
	}
	return err
}

// enter makes cgroups, gives those of cpuset what they have to be told before anything can be in them (cgroups(7)), and
// moves itself there.
const enter = `
for dir in $CGROUPS; do
	mkdir -p "$dir"
	for file in cpuset.cpus cpuset.mems; do
		if [ -e "$dir/$file" ] && [ -e "$dir/cgroup.clone_children" ]; then cat "$dir/../$file" >"$dir/$file"; fi
	done
	echo $$ >"$dir/cgroup.procs"
done
unset CGROUPS
exec "$@"`

// launch starts a program in the machine's cgroups, or in one below them. It ends with the test, however that ends.
func (m *machine) launch(cmd *exec.Cmd, below string) error {
	cmd.Args = append([]string{"sh", "-ec", enter, "sh"}, cmd.Args...)
	path, err := exec.LookPath("sh")
	if err != nil {
		return err
	}
	cmd.Path, cmd.Err = path, nil
	dirs := make([]string, len(m.cgroups))
	for i, dir := range m.cgroups {
		dirs[i] = filepath.Join(dir, below)
	}
	cmd.Env = append(os.Environ(), "CGROUPS="+strings.Join(dirs, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The signal comes when the thread that started it ends, so it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // whoever wants to know asks ProcessState
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return err
	}
	m.t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // it may have ended
		<-done
	})
	return nil
}

// session is a command line that runs on the machine, as of root who is logged in.
type session struct {
	m      *machine
	cmd    *exec.Cmd
	output *os.File
}

// begin starts a script there, with bash.
func (m *machine) begin(script string) *session {
	m.t.Helper()
	output, err := os.CreateTemp(m.t.TempDir(), "output")
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(m.init), "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup",
		"env", "-i", "HOME=/root", "USER=root", "TERM=dumb", "LC_ALL=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"bash", "-euo", "pipefail", "-c", "cd\n"+script)
	cmd.Stdout, cmd.Stderr = output, output
	if err := m.launch(cmd, "session"); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = output.Close() }) // it was written by others
	return &session{m: m, cmd: cmd, output: output}
}

// said is what the session has printed so far.
func (s *session) said() string {
	s.m.t.Helper()
	text, err := os.ReadFile(s.output.Name())
	if err != nil {
		s.m.t.Fatal(err)
	}
	return string(text)
}

// running reports whether anything of the session still runs.
func (s *session) running() bool { return unix.Kill(-s.cmd.Process.Pid, 0) == nil }

// wait waits until all of it has ended.
func (s *session) wait() error {
	end := time.Now().Add(patience)
	for s.running() {
		if time.Now().After(end) {
			return fmt.Errorf("it runs for %s by now", patience)
		}
		time.Sleep(retry)
	}
	return nil
}

// retry is how often things are looked at again that nobody tells changes of.
const retry = 50 * time.Millisecond

// try runs a script there, and returns what it prints.
func (m *machine) try(script string) (string, error) {
	m.t.Helper()
	s := m.begin(script)
	if err := s.wait(); err != nil {
		return s.said(), err
	}
	if code := s.exitCode(); code != 0 {
		return s.said(), fmt.Errorf("it ended with exit code %d", code)
	}
	return s.said(), nil
}

func (s *session) exitCode() int {
	for s.cmd.ProcessState == nil { // it is reaped a moment later
		time.Sleep(time.Millisecond)
	}
	return s.cmd.ProcessState.ExitCode()
}

func (m *machine) eventually(what string, look func() error) {
	m.t.Helper()
	end := time.Now().Add(patience)
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(retry)
	}
}

// listen opens a port on the machine.
func (m *machine) listen(address string) net.Listener {
	m.t.Helper()
	var l net.Listener
	var err error
	var wait sync.WaitGroup
	wait.Go(func() {
		// A thread in another network isn't good for anything else, so it ends with this.
		runtime.LockOSThread()
		var f *os.File
		if f, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", m.init)); err != nil {
			return
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", address)
		}
	})
	wait.Wait()
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// put puts a file into a directory of the machine's /root.
func (m *machine) put(dir, path string) {
	m.t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.MkdirAll(filepath.Join(m.home, dir), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(m.home, dir, filepath.Base(path)), text, 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
