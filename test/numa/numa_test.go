// Package numa holds one test: what deckhand does on a machine with NUMA nodes and sibling threads, and with a clock that
// the test may set. The machine is emulated: one boot for all of it.
package numa

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/cgroupv2/vm"
)

// machineTime is how long the machine may take from boot to power-off. With two CPUs of its own it takes 45 s.
const machineTime = 5 * time.Minute

// tests are the tests that the machine runs: of packages, by expressions. Those that need this machine, as they set its
// clock, have the build tag numa.
var tests = map[string]string{
	"host/clock": "^TestSetClock$",
	"agent":      "^TestClockIsSet$",
}

func TestMachine(t *testing.T) {
	pc := vm.FindPC(t)
	dir := t.TempDir()
	files := map[string]string{"/init": filepath.Join(dir, "guest")}
	vm.Build(t, files["/init"], "build", "./guest")
	want := map[string]string{
		"NUMA nodes": "0-1", "distances of node 0": "10 21", "CPUs of node 0": "0-3", "CPUs": "0-5",
		"threads of CPU 0's core": "0-1", "pressure": "there",
	}
	for pkg, expression := range tests {
		program := filepath.Join(dir, filepath.Base(pkg)+".test")
		vm.Build(t, program, "test", "../../internal/"+pkg, "numa")
		files["/tests/"+filepath.Base(pkg)+" "+expression] = program
		want["tests of "+filepath.Base(pkg)] = "ok"
	}
	result := pc.Run(t, files, machineTime)
	vm.Check(t, result.Facts, want)
	vm.LogIfFailed(t, result.Facts)
}
