//go:build !systemd

// Where systemd is, moving processes is no more than this either.

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// ownPIDs names the group for tests that run again as the first process of a PID namespace.
const ownPIDs = "DECKHAND_TEST_OWN_PIDS"

// TestMoveProcesses moves processes out of the host's root group. It does so in a PID namespace of its own, where all others than its own can't be
// seen, and so can't be moved.
func TestMoveProcesses(t *testing.T) {
	if group := os.Getenv(ownPIDs); group != "" {
		moveProcesses(t, group)
		return
	}
	group := fmt.Sprintf("/deckhand-resources-test-%d-processes", os.Getpid())
	t.Cleanup(func() {
		m := New(Config{}, logr.Discard())
		dirs, err := tree.Find()
		if err != nil {
			t.Error(err)
		}
		for _, mount := range dirs.All {
			for _, name := range []string{group, group + "-thread"} {
				if err := m.removeGroup(filepath.Join(mount, name)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMoveProcesses$", "-test.count=1")
	cmd.Env = append(os.Environ(), ownPIDs+"="+group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func moveProcesses(t *testing.T, group string) {
	if os.Getpid() != 1 {
		t.Fatal("this isn't a PID namespace of the test's own: the host's processes would be moved")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	layout, err := tree.Find()
	if err != nil {
		t.Fatal(err)
	}
	l := hierarchies{Layout: layout, used: needed[:]}
	inGroup := func(group string) int {
		cmd := exec.Command("sleep", "1h")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		for _, mount := range l.ofProcesses() {
			if err := l.makeForProcesses(mount, group); err != nil {
				t.Fatal(err)
			}
			if err := move(filepath.Join(mount, group), cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
		return cmd.Process.Pid
	}
	one, two, container := inGroup("/"), inGroup("/"), inGroup(group+"/container")
	in := func(process, want string) {
		t.Helper()
		text, err := os.ReadFile("/proc/" + process + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			hierarchy, is, _ := strings.Cut(strings.TrimSpace(line), ":/")
			_, controllers, _ := strings.Cut(hierarchy, ":")
			if strings.Contains(controllers, "cpu") && controllers != "cpuset" || controllers == "memory" || l.V2 && controllers == "" {
				if "/"+is != want {
					t.Errorf("%s is in %s, want %s", process, line, want)
				}
			}
		}
	}
	expect := func(pid int, want string) { t.Helper(); in(strconv.Itoa(pid), want) }
	expect(one, "/")
	thread := threadElsewhere(t, l, group+"-thread")
	in(thread, group+"-thread")
	m := New(Config{CgroupRoot: "/", Own: group + "/own", System: group + "/system"}, logr.Discard())
	for range 2 { // as another agent does
		if err := m.MoveProcesses(); err != nil {
			t.Fatal(err)
		}
		expect(os.Getpid(), group+"/own")
		in(thread, group+"/own")
		expect(one, group+"/system")
		expect(two, group+"/system")
		expect(container, group+"/container")
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := move(filepath.Join(l.Mounts["memory"], group+"/system"), ended.Process.Pid); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
	cantMove(t, l, group, inGroup("/"), expect)
	onlySystem := New(Config{CgroupRoot: "/", System: "/"}, logr.Discard())
	if err := onlySystem.MoveProcesses(); err == nil || !strings.Contains(err.Error(), "systemCgroups: ") {
		t.Errorf("into the root itself: %v", err)
	}
	file := New(Config{Own: group + "/own/cgroup.procs"}, logr.Discard())
	if err := file.MoveProcesses(); err == nil || !strings.Contains(err.Error(), "kubeletCgroups: ") {
		t.Errorf("into what is no group: %v", err)
	}
}

// threadElsewhere puts the thread of this test into a group of its own, and the process into the uppermost one.
func threadElsewhere(t *testing.T, l hierarchies, group string) (thread string) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	id := strconv.Itoa(unix.Gettid())
	for _, mount := range l.ofProcesses() {
		dir, file := filepath.Join(mount, group), "tasks"
		if _, err := makeGroup(dir); err != nil {
			t.Fatal(err)
		}
		err := move(mount, os.Getpid())
		if l.V2 {
			file = "cgroup.threads"
			err = errors.Join(err, writeFile(filepath.Join(dir, "cgroup.type"), "threaded"))
		}
		if err = errors.Join(err, writeFile(filepath.Join(dir, file), id)); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%d/task/%s", os.Getpid(), id)
}

// cantMove has processes moved into a group of which others have controllers, which cgroup v1 allows.
func cantMove(t *testing.T, l hierarchies, group string, pid int, expect func(pid int, want string)) {
	t.Helper()
	const remedy = "name a group of its own, such as /system.slice/deckhand"
	var logged string
	log := funcr.New(func(_, line string) { logged += line + "\n" }, funcr.Options{})
	own, system := New(Config{Own: group}, log).MoveProcesses(), New(Config{System: group}, log).MoveProcesses()
	if system != nil {
		t.Errorf("the host's processes: %v", system)
	}
	if !l.V2 {
		if own != nil {
			t.Errorf("the agent: %v", own)
		}
		expect(os.Getpid(), group)
		expect(pid, group)
		return
	}
	if !errors.Is(own, unix.EBUSY) || !strings.Contains(own.Error(), "kubeletCgroups: ") || !strings.Contains(own.Error(), remedy) {
		t.Errorf("the agent: %v", own)
	}
	if !strings.Contains(logged, "A process of the host stays where it is") || strings.Count(logged, remedy) != 1 || !strings.Contains(logged, `"processes"=0`) {
		t.Errorf("logged %s", logged)
	}
	expect(pid, "/") // and the agent starts
}

// TestProcessesInTheCgroupRoot: on cgroup v2 a group with processes of its own gives controllers to none. Once they are in another one, it does.
func TestProcessesInTheCgroupRoot(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	root := m.conf.CgroupRoot
	cmd := exec.Command("sleep", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, mount := range l.ofProcesses() {
			if err := m.removeGroup(filepath.Join(mount, root, "own")); err != nil {
				t.Error(err)
			}
		}
	})
	if err := Move(root, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p := makePod("a", exact)
	err := m.Ensure(t.Context(), p, allocated.Limits{})
	if l.V2 != (err != nil) || l.V2 && !strings.Contains(err.Error(), root+": processes are in that group itself, which cgroup v2 forbids: move them into a child group") {
		t.Errorf("got %v", err)
	}
	if err := Move(root+"/own", cmd.Process.Pid); l.V2 && err == nil {
		t.Error("moved, and the group has processes")
	}
	for _, mount := range l.ofProcesses() { // as an administrator does
		dir := filepath.Join(mount, root, "own")
		_, err := makeGroup(dir)
		if err := errors.Join(err, move(dir, cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	m.mustEnsure(t, p, allocated.Limits{})
}
