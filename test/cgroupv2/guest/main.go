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

	"github.com/deckhand-node/deckhand/test/cgroupv2/report"
)

// patience is how long the whole voyage may take in the guest. The host waits longer.
const patience = 4 * time.Minute

func main() {
	if os.Getpid() != 1 {
		voyage()
		return
	}
	boot()
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fail(fmt.Errorf("power off: %w", err))
	}
}

// boot sets the machine up and has a child do the rest: an init has to reap
// whatever process ends, which would take the children of os/exec from it.
func boot() {
	if err := setUp(); err != nil {
		fail(err)
		return
	}
	cmd := exec.Command(guestDir+"/guest", "voyage")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fail(err)
		return
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			fail(fmt.Errorf("wait for processes: %w", err))
			return
		}
		if pid == cmd.Process.Pid {
			return
		}
	}
}

func voyage() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := &agent{}
	if err := sail(ctx, a); err != nil {
		fail(err)
		a.printLog()
	}
}

// tell reports one fact.
func tell(value string, fact string, args ...any) {
	write(report.Line{Fact: fmt.Sprintf(fact, args...), Value: value})
}

func fail(err error) { write(report.Line{Failure: err.Error()}) }

func write(l report.Line) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err == nil {
		l.Milliseconds = time.Duration(since.Nano()).Milliseconds()
	}
	if err := report.Write(os.Stdout, l); err != nil {
		fmt.Println("can't report:", err)
	}
}
