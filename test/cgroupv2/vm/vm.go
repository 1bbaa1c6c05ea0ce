// Package vm boots a virtual machine on the host's own file system, for tests that
// need a kernel, or a first process, of their own.
package vm

import (
	"bytes"
	"context"
	_ "embed"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/report"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

const deckhand = "github.com/deckhand-node/deckhand/cmd/deckhand"

// Kernel is User-mode Linux: a Linux kernel that is a program, with cgroup v2
// even where the host has v1.
type Kernel struct {
	program string
	modules string
}

// Find fails the test if the Debian packages that the kernel needs are missing.
func Find(t *testing.T) Kernel {
	t.Helper()
	const hint = "run `make test-deps` (as root)"
	program, err := exec.LookPath("linux.uml")
	if err != nil {
		t.Fatalf("linux.uml, of the Debian package user-mode-linux, is missing: %s", hint)
	}
	found, err := filepath.Glob("/usr/lib/uml/modules/*/modules.dep")
	if err != nil || len(found) == 0 {
		t.Fatalf("/usr/lib/uml/modules, of the Debian package user-mode-linux, is missing: %s", hint)
	}
	// The kernel has no nftables families for iptables of the new kind to use.
	if _, err := os.Stat("/usr/sbin/iptables-legacy"); err != nil {
		t.Fatalf("iptables-legacy, of the Debian package iptables, is missing: %s", hint)
	}
	return Kernel{program, filepath.Dir(slices.Max(found))}
}

// Stage makes a directory with what every guest needs: the program guest, built from this
// package, that is its first process; deckhand; the runtime's programs; kernel modules.
func (k Kernel) Stage(t *testing.T, guest string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Build(t, filepath.Join(dir, "guest"), "build", guest)
	Build(t, filepath.Join(dir, "deckhand"), "build", deckhand)
	for name, target := range map[string]string{"bin": embeddedtest.Bin(t), "modules": k.modules} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Build has the go command make a program that needs no library: "build" one, or the
// "test" of a package, with these build tags.
func Build(t *testing.T, to, how, pkg string, tags ...string) {
	t.Helper()
	args := []string{how, "-trimpath", "-tags", strings.Join(tags, ","), "-o", to}
	if how == "test" {
		args = append(args, "-c")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", how, pkg, err, out)
	}
}

// Run boots the kernel with dir/guest as its init, on the host's file system
// read-only, and returns what the guest reported until it powered off. The test fails if
// that takes longer than the limit, or the guest failed. The guest's first process has
// the variables env ("NAME=VALUE").
func (k Kernel) Run(t *testing.T, dir string, limit time.Duration, env ...string) report.Result {
	t.Helper()
	began := time.Now()
	return results(t, k.boot(t, dir, limit, env), began)
}

// results are what a guest reported on its console. The test fails if the guest did.
func results(t *testing.T, console string, began time.Time) report.Result {
	t.Helper()
	result, err := report.Parse(console)
	if err != nil {
		t.Error(err)
	}
	for _, failure := range result.Failures {
		t.Errorf("in the guest: %s", failure)
	}
	if t.Failed() {
		t.Fatalf("the guest's console:\n%s", console)
	}
	t.Logf("the virtual machine ran for %v, by its own clock for %v", time.Since(began).Round(10*time.Millisecond), result.Took)
	return result
}

// Check compares what the guest reported with what it should have. Facts that aren't
// wanted may be anything.
func Check(t *testing.T, facts, want map[string]string) {
	t.Helper()
	for _, fact := range slices.Sorted(maps.Keys(want)) {
		if got, reported := facts[fact]; !reported {
			t.Errorf("%s: not reported", fact)
		} else if got != want[fact] {
			t.Errorf("%s is %q, want %q", fact, got, want[fact])
		}
	}
}

// LogIfFailed shows all that the guest reported.
func LogIfFailed(t *testing.T, facts map[string]string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, fact := range slices.Sorted(maps.Keys(facts)) {
		t.Logf("%s: %s", fact, facts[fact])
	}
}

// xstate is the source of a library that lets the kernel run on CPUs with more state than it knows.
//
//go:embed testdata/xstate.c
var xstate []byte

// xstateLibrary makes that library in a directory.
func xstateLibrary(t *testing.T, dir string) string {
	t.Helper()
	library := filepath.Join(dir, "xstate.so")
	cmd := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-o", library, "-")
	cmd.Stdin = bytes.NewReader(xstate)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", library, err, out)
	}
	return library
}

func (k Kernel) boot(t *testing.T, dir string, limit time.Duration, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	state := t.TempDir()
	cmd := exec.CommandContext(ctx, k.program, append(slices.Clone(env),
		"mem=2G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init="+filepath.Join(dir, "guest"),
		"con=null", "con0=null,fd:1", "quiet", "loglevel=1", "uml_dir="+state)...)
	cmd.Env = []string{"HOME=" + state, "PATH=" + os.Getenv("PATH"), "LD_PRELOAD=" + xstateLibrary(t, state)}
	cmd.Dir = state
	return console(t, ctx, cmd)
}

// console runs a virtual machine until it powers off, and returns what it wrote on its console.
func console(t *testing.T, ctx context.Context, cmd *exec.Cmd) string {
	t.Helper()
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// Each process of the guest is one of the host's: in a PID namespace they all
	// end with the kernel, and the kernel ends with the test's thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Errorf("the virtual machine: %v (%v)", err, ctx.Err())
	}
	return out.String()
}
