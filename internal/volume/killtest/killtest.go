// Package killtest kills a process between every two of its steps, as kill -9 or a power loss might, and lets the test
// check the state that is left.
//
// A step is a system call that changes state outside of the process: mounts, and files with their names, modes, owners
// and content. The test binary runs itself again as a child process. The child is traced (ptrace, with a seccomp filter
// so that other calls cost nothing), and is killed when it is about to take its n-th step: it has taken the steps
// before the n-th, but not the n-th. This is repeated with n = 1, 2, ... until a child completes its work.
//
//	killtest.Run(t, killtest.Case{
//		Name:  "write",
//		Fresh: func(t *testing.T, dir string) { ... },               // optional
//		Child: func(dir string) error { return Write(dir, content) }, // in a process that is killed
//		Check: func(t *testing.T, dir string, n int) { ... },         // Write again, and check the result
//	})
//
// The child runs in the mount namespace of the test (see mounttest), and executes the same test function: the code
// before the call of Run is executed in each child, too, so that Child and Check may use the same variables. Files that
// this code makes below os.TempDir are removed with the test. Its system calls aren't counted as steps.
package killtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

var every = flag.Int("kill.every", 1, "kill at every n-th step only")

// maxSteps is the maximum number of steps of a child: more of them mean an endless loop.
const maxSteps = 20000

// Environment variables of a child.
const (
	envCase = "DECKHAND_TEST_KILL_CASE" // the full name of its test
	envDir  = "DECKHAND_TEST_KILL_DIR"
)

// Case is work that is done step by step, with a check of its result.
type Case struct {
	// Name distinguishes the case from other cases of the same test; it may be empty if there is only one.
	Name string
	// Fresh fills an empty directory with the files that Child needs. Each child gets a new directory. Fresh may be
	// nil. Mounts below the directory are detached after Check.
	Fresh func(t *testing.T, dir string)
	// Child does the work, in a process of its own. If a child that isn't killed returns an error, the test fails.
	Child func(dir string) error
	// Check checks the directory after a child was killed when it was about to take step n (the first step is 1), and
	// after the last child, which completed its work. Usually Check does the same work again, completely.
	Check func(t *testing.T, dir string, n int)
}

// Run starts one child for each step of the case and kills it before that step. It fails the test if the child takes no
// step at all, and stops at the first step whose check fails.
func Run(t *testing.T, c Case) {
	t.Helper()
	if c.Name != "" {
		name := c.Name
		c.Name = ""
		t.Run(name, func(t *testing.T) { Run(t, c) })
		return
	}
	if wanted := os.Getenv(envCase); wanted != "" {
		if wanted == t.Name() {
			child(c, os.Getenv(envDir), steps)
		}
		return // another case of the same test
	}
	step := max(*every, 1)
	full, temp := t.Name(), t.TempDir()
	for n, ended := 1, false; !ended; n += step {
		if n > maxSteps {
			t.Fatalf("the child takes more than %d steps", maxSteps)
		}
		ok := t.Run(fmt.Sprintf("killed at step %d", n), func(t *testing.T) { ended = point(t, c, full, temp, n) })
		if !ok {
			return
		}
		if ended && n == 1 {
			t.Fatal("the child took no step: nothing was tested")
		}
	}
}

// PID returns the process ID of the test, also when it is called in a child.
func PID() int {
	if os.Getenv(envCase) != "" {
		return os.Getppid()
	}
	return os.Getpid()
}

// Calls does the work in a child, and returns how many system calls on files the work takes. As with Run, the child
// executes the same test function up to the call of Calls.
func Calls(t *testing.T, work func() error) int {
	t.Helper()
	if wanted := os.Getenv(envCase); wanted != "" {
		if wanted == t.Name() {
			child(Case{Child: func(string) error { return work() }}, "", ofFiles)
		}
		return 0
	}
	end, err := trace(command{args: []string{"-test.run=" + pattern(t.Name()), "-test.count=1"},
		env: append(os.Environ(), envCase+"="+t.Name()), calls: ofFiles}, maxSteps)
	if err != nil || !end.done || end.failed {
		t.Fatalf("%+v, %v", end, err)
	}
	return end.steps
}

// point runs one child, kills it before step n, and checks the result. It reports whether the child completed its work
// before that step.
func point(t *testing.T, c Case, test, temp string, n int) (ended bool) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detach(t, dir) })
	if c.Fresh != nil {
		c.Fresh(t, dir)
	}
	end, err := trace(command{
		args:  []string{"-test.run=" + pattern(test), "-test.count=1"},
		env:   append(os.Environ(), envCase+"="+test, envDir+"="+dir, "TMPDIR="+temp),
		calls: steps,
	}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the child %s; its output: %s", end.text(n), end.output)
		}
	})
	if !end.killed && !end.done {
		t.Fatalf("the child ended before its work was done")
	}
	if end.failed {
		t.Fatalf("the child failed")
	}
	c.Check(t, dir, n)
	return end.done
}

// pattern makes -test.run choose exactly one test.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// detach detaches the mounts that a child or Check left below dir.
func detach(t *testing.T, dir string) {
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	for i := range left {
		// Later mounts may be on top of earlier ones.
		if err := unix.Unmount(left[len(left)-1-i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("detach %s: %v", left[len(left)-1-i].Mountpoint, err)
		}
	}
}
