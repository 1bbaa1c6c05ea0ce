// Package mounttest runs a package's tests in a mount namespace of their own, so that they can
// mount for real and nothing of it is seen, or left, outside. It also mounts a file system that
// stops answering when a test asks for it, as a network share does whose server is gone.
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

// Run runs the tests and returns the code to exit with. It is for TestMain, and
// fails when it isn't run as root.
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
	// Unsharing also makes every mount private, all the way down from /.
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
