package cgroupv2

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// voyageTime is how long the machine may take from boot to power-off.
const voyageTime = 5 * time.Minute

// kernel is User-mode Linux: a Linux kernel that is a program, with cgroup v2
// even where the host has v1.
type kernel struct {
	program string
	modules string
}

// findKernel fails the test if the Debian packages that it needs are missing.
func findKernel(t *testing.T) kernel {
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
	return kernel{program, filepath.Dir(slices.Max(found))}
}

// run boots the kernel with dir/guest as its init, on the host's file system
// read-only, and returns what came to the console until it powered off.
func (k kernel) run(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), voyageTime)
	defer cancel()
	state := t.TempDir()
	cmd := exec.CommandContext(ctx, k.program,
		"mem=2G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init="+filepath.Join(dir, "guest"),
		"con=null", "con0=null,fd:1", "quiet", "loglevel=1", "uml_dir="+state)
	cmd.Env = []string{"HOME=" + state, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = state
	cmd.WaitDelay = 10 * time.Second
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	// Each process of the guest is one of the host's: in a PID namespace they all
	// end with the kernel, and the kernel ends with the test's thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Errorf("the virtual machine: %v (%v)", err, ctx.Err())
	}
	return console.String()
}
