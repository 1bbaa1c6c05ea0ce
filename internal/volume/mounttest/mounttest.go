// Package mounttest runs a package's tests in a mount namespace of their own: their mounts are real, but are invisible
// outside of the namespace and end with it. It also mounts a file system that stops answering when a test requests
// this, like a network share whose server is gone.
package mounttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// mark is set in the environment of the process inside the namespace.
const mark = "DECKHAND_TEST_MOUNT_NAMESPACE"

// Run runs the tests and returns the exit code. It has to be called by TestMain, as root.
func Run(m *testing.M) int {
	if os.Getenv(mark) != "" {
		return m.Run()
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests mount file systems: run them as root")
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mark+"=1")
	// When the namespace is unshared, all mounts below / are made private as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
