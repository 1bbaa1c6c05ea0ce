//go:build !systemd

// Where systemd is, moving processes is no more than this either.

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
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
		dirs, err := findLayout()
		if err != nil {
			t.Error(err)
		}
		for _, mount := range dirs.all {
			if err := m.removeGroup(filepath.Join(mount, group)); err != nil {
				t.Error(err)
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
	l, err := findLayout()
	if err != nil {
		t.Fatal(err)
	}
	l.used = needed[:]
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
	expect := func(pid int, want string) {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			hierarchy, is, _ := strings.Cut(strings.TrimSpace(line), ":/")
			_, controllers, _ := strings.Cut(hierarchy, ":")
			if strings.Contains(controllers, "cpu") && controllers != "cpuset" || controllers == "memory" || l.v2 && controllers == "" {
				if "/"+is != want {
					t.Errorf("process %d is in %s, want %s", pid, line, want)
				}
			}
		}
	}
	expect(one, "/")
	m := New(Config{CgroupRoot: "/", Own: group + "/own", System: group + "/system"}, logr.Discard())
	for range 2 { // as another agent does
		if err := m.MoveProcesses(); err != nil {
			t.Fatal(err)
		}
		expect(os.Getpid(), group+"/own")
		expect(one, group+"/system")
		expect(two, group+"/system")
		expect(container, group+"/container")
	}
	onlySystem := New(Config{CgroupRoot: "/", System: "/"}, logr.Discard())
	if err := onlySystem.MoveProcesses(); err == nil || !strings.Contains(err.Error(), "systemCgroups: ") {
		t.Errorf("into the root itself: %v", err)
	}
	file := New(Config{Own: group + "/own/cgroup.procs"}, logr.Discard())
	if err := file.MoveProcesses(); err == nil || !strings.Contains(err.Error(), "kubeletCgroups: ") {
		t.Errorf("into what is no group: %v", err)
	}
}
