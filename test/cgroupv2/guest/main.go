// Command guest is the first process of the virtual machine that the test boots.
// It makes the machine fit for containers, runs deckhand in it, reports on the
// console what it sees, and powers the machine off.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// patience is how long all steps may take in the guest. The host waits longer.
const patience = 8 * time.Minute

func main() {
	switch what := os.Args[len(os.Args)-1]; what {
	case "steps":
		runSteps()
	case "parent", "eat":
		inContainer(what)
	case "hog":
		if err := takeMemory(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		boot()
		machine.PowerOff()
	}
}

// boot sets the machine up and has a child do the rest: an init has to reap
// whatever process ends, which would take the children of os/exec from it.
func boot() {
	if err := machine.SetUp(map[string]string{manifestDir + "/": ""}); err != nil {
		machine.Fail(err)
		return
	}
	cmd := exec.Command(machine.Dir+"/guest", "steps")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		machine.Fail(err)
		return
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			machine.Fail(fmt.Errorf("wait for processes: %w", err))
			return
		}
		if pid == cmd.Process.Pid {
			return
		}
	}
}

func runSteps() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := &agent{config: machine.Dir + "/config.yaml"}
	if err := steps(ctx, a); err != nil {
		machine.Fail(err)
		a.printLog()
	}
}
