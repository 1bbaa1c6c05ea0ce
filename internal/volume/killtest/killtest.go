// Package killtest kills a process between every two of its steps, as kill -9 or a loss
// of power might, and has the test check what comes of it.
//
// A step is a system call that changes what outlives the process: mounts, files, their
// names, modes, owners and content. The test binary runs itself again as a child, which
// is traced (ptrace, with a seccomp filter so that other calls cost nothing) and killed
// when it is about to take its n-th step: step n has not happened, those before it have. This goes on
// with n = 1, 2, ... until a child gets to its end.
//
//	killtest.Run(t, killtest.Case{
//		Name:  "write",
//		Fresh: func(t *testing.T, dir string) { ... },               // optional
//		Child: func(dir string) error { return Write(dir, content) }, // in a process that is killed
//		Check: func(t *testing.T, dir string, n int) { ... },         // Write again, and look
//	})
//
// The child is in the mount namespace of the test (see mounttest), and comes to Run the
// way the test does: what a test function does before Run is done in each child, too, so that
// Child and Check may use the same variables. Whatever that leaves below os.TempDir goes
// with the test. The steps of what comes before Run aren't counted.
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

// maxSteps is how many steps a child may take: one that goes on for ever is a mistake.
const maxSteps = 20000

// What a child gets by its environment.
const (
	envCase = "DECKHAND_TEST_KILL_CASE" // the full name of its test
	envDir  = "DECKHAND_TEST_KILL_DIR"
)

// Case is something that is done step by step.
type Case struct {
	// Name tells it from other cases of the same test; empty is right for the only one.
	Name string
	// Fresh puts what Child is to find into an empty directory, of which there is another for
	// each point. It may be nil. What is mounted below the directory is detached after Check.
	Fresh func(t *testing.T, dir string)
	// Child takes the steps, in a process of its own. An error of a child that is not
	// killed fails the test.
	Child func(dir string) error
	// Check looks at what is left of a child that was killed when about to take step n, counted
	// from 1, and at what the last one brought to its end. Usually it does the same
	// thing again, to the end.
	Check func(t *testing.T, dir string, n int)
}

// Run kills children at every point of the case. It fails the test if there was no step to
// kill one at, and stops at the first point that fails.
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

// PID is the number of the test's process, also in its children.
func PID() int {
	if os.Getenv(envCase) != "" {
		return os.Getppid()
	}
	return os.Getpid()
}

// Calls has a child do the work, and returns how many system calls that have to do with files it takes for it. The
// child comes to Calls as it does to Run.
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

// point runs one child and checks what is left of it. It reports whether that got to its end.
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

// detach takes off what a child, or the check, left mounted.
func detach(t *testing.T, dir string) {
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	for i := range left {
		// Later ones may lie on earlier ones.
		if err := unix.Unmount(left[len(left)-1-i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("detach %s: %v", left[len(left)-1-i].Mountpoint, err)
		}
	}
}
