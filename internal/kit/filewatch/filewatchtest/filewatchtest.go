// Package filewatchtest runs tests in which the kernel's limits of inotify are reached. They run in a user namespace
// with its own limits, so that other processes of the machine aren't affected.
package filewatchtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mark is set to the test's name in the environment of the process that runs in the namespace.
const mark = "DECKHAND_TEST_INOTIFY_LIMITS"

// Limits are the numbers of inotify instances and watches that a process may have.
type Limits struct{ Instances, Watches int }

// Plenty is a limit that no test reaches.
const Plenty = 1 << 20

// Run runs a test's body in another process of the test's program, in a user and mount namespace of its own, with these
// limits. The body can change them with Set.
func Run(t *testing.T, l Limits, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv(mark) == t.Name() {
		Set(t, l)
		body(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(t.Name(), "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	cmd := exec.Command(self, "-test.v", "-test.count=1", "-test.run="+strings.Join(names, "/"))
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		GidMappingsEnableSetgroups: os.Geteuid() == 0}
	if cmd.SysProcAttr.UidMappings, err = mappings("uid_map", os.Geteuid()); err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr.GidMappings, err = mappings("gid_map", os.Getegid()); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("this process can't create user namespaces: %v", err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(output.String(), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a process of its own: %v\n%s", err, output.String())
	} else if testing.Verbose() {
		t.Logf("in a process of its own:\n%s", output.String())
	}
}

// Set changes the limits of the test that Run has started.
func Set(t *testing.T, l Limits) {
	t.Helper()
	for name, n := range map[string]int{"max_inotify_instances": l.Instances, "max_inotify_watches": l.Watches} {
		if err := os.WriteFile(filepath.Join("/proc/sys/user", name), fmt.Append(nil, n), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Count returns how many inotify instances and watches this process has.
func Count(t *testing.T) (instances, watches int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != "anon_inode:inotify" {
			continue
		}
		instances++
		info, err := os.ReadFile("/proc/self/fdinfo/" + filepath.Base(fd))
		if err != nil {
			continue // closed meanwhile
		}
		watches += strings.Count(string(info), "inotify wd:")
	}
	return instances, watches
}

// mappings returns the mappings for a user namespace: all IDs of this process's namespace to themselves or, without
// privileges, only the own ID to 0.
func mappings(file string, own int) (all []syscall.SysProcIDMap, err error) {
	if os.Geteuid() != 0 {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: own, Size: 1}}, nil
	}
	text, err := os.ReadFile("/proc/self/" + file)
	for line := range strings.Lines(string(text)) {
		var inside, outside, size int
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err != nil {
			return nil, err
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: size})
	}
	return all, err
}
