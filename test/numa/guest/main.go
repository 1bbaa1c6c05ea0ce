// Command guest is the first process of the emulated machine: it reports what the machine is made of, runs the tests in
// /tests, whose names are a package and an expression, and powers the machine off.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// patience is how long all tests may take. The host waits longer.
const patience = 4 * time.Minute

func main() {
	if err := run(); err != nil {
		machine.Fail(err)
	}
	machine.PowerOff()
}

func run() error {
	if err := machine.MountKernel(); err != nil {
		return err
	}
	for _, dir := range []string{"/tmp", "/etc", "/run", "/var/log", "/var/lib"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/etc/resolv.conf", []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for fact, path := range map[string]string{
		"NUMA nodes": "node/online", "distances of node 0": "node/node0/distance", "CPUs of node 0": "node/node0/cpulist",
		"CPUs": "cpu/online", "threads of CPU 0's core": "cpu/cpu0/topology/thread_siblings_list",
	} {
		machine.TellFile(fact, filepath.Join("/sys/devices/system", path))
	}
	_, err = os.Stat("/proc/pressure/memory")
	machine.Tell(map[bool]string{true: "there", false: fmt.Sprint(err)}[err == nil], "pressure")
	// Timers don't follow when the tests set the clock: this is a time that passes.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	programs, err := filepath.Glob("/tests/*")
	if err != nil {
		return err
	}
	for _, program := range programs {
		pkg, expression, _ := strings.Cut(filepath.Base(program), " ")
		cmd := exec.CommandContext(ctx, program, "-test.run", expression, "-test.v")
		cmd.Dir = "/tmp"
		cmd.Env = []string{"HOME=/tmp", "TMPDIR=/tmp", "PATH=/bin"}
		out, err := cmd.CombinedOutput()
		if err == nil && !strings.Contains(string(out), "--- PASS") {
			err = fmt.Errorf("no test ran")
		}
		if err != nil {
			machine.Tell(fmt.Sprintf("%v\n%s", err, out), "tests of %s", pkg)
			continue
		}
		machine.Tell("ok", "tests of %s", pkg)
	}
	return nil
}
