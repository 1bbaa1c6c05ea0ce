package embeddedtest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// InNetwork runs a test in a process that has a network of its own, and reports whether this is it: no
// rule, interface or setting of the host is touched.
func InNetwork(t *testing.T) bool {
	t.Helper()
	const mark = "DECKHAND_TEST_NETWORK"
	if os.Getenv(mark) == t.Name() {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("set lo up: %v\n%s", err, out)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a network of its own: %v\n%s", err, out)
	}
	return false
}
