// Command guest makes the virtual machine that the test boots a host with systemd as
// its first process, which starts this program again: to report on the console what
// becomes of a kubelet's unit, and to power the machine off.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// patience is how long all steps may take in the guest. The host waits longer.
const patience = 8 * time.Minute

func main() {
	if os.Getpid() == 1 {
		machine.Fail(boot())
		machine.PowerOff()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := steps(ctx); err != nil {
		machine.Fail(err)
		printLogs()
	}
	machine.PowerOff()
}

// boot makes the host and has systemd take this process over. It returns only if that fails.
func boot() error {
	files, err := readTree(hostDir() + "/root")
	if err != nil {
		return err
	}
	if err := machine.SetUp(files); err != nil {
		return err
	}
	if err := address(); err != nil {
		return fmt.Errorf("give the host an address: %w", err)
	}
	if err := install(); err != nil {
		return fmt.Errorf("install programs: %w", err)
	}
	if err := keepUnits(); err != nil {
		return fmt.Errorf("leave out the host's units: %w", err)
	}
	// In a container systemd leaves devices alone, which here are nobody's, and gets by
	// a variable what else it reads from the kernel's command line.
	options := ""
	if os.Getenv("CGROUPS") == "v1" {
		if err := unix.Unmount(machine.CgroupDir, 0); err != nil {
			return err
		}
		options = "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
	}
	env := append(os.Environ(), "container=uml", "SYSTEMD_PROC_CMDLINE="+options)
	const systemd = "/usr/lib/systemd/systemd"
	return fmt.Errorf("exec %s: %w", systemd, unix.Exec(systemd, []string{systemd, "--unit=steps.target", "--log-target=console", "--log-level=err", "--show-status=no"}, env))
}
