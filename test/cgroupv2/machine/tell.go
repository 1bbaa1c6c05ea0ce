package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/report"
)

// answer is how long a web server may take to answer once its container runs.
const answer = 15 * time.Second

// Tell reports one fact.
func Tell(value string, fact string, args ...any) {
	write(report.Line{Fact: fmt.Sprintf(fact, args...), Value: value})
}

// Fail reports why the guest gives up.
func Fail(err error) { write(report.Line{Failure: err.Error()}) }

func write(l report.Line) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err == nil {
		l.Milliseconds = time.Duration(since.Nano()).Milliseconds()
	}
	if err := report.Write(os.Stdout, l); err != nil {
		fmt.Println("can't report:", err)
	}
}

// TellFile reports what a file says, or why it can't be read.
func TellFile(fact, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		Tell(err.Error(), "%s", fact)
		return
	}
	Tell(strings.TrimSpace(string(text)), "%s", fact)
}

// TellAnswer reports what a web server says at an address. It gives it time: its container runs before it listens.
func TellAnswer(ctx context.Context, address, fact string) {
	var text []byte
	err := Await(ctx, answer, nil, func(ctx context.Context) (err error) {
		text, err = Get(ctx, "http://"+address+"/")
		return err
	})
	if err != nil {
		Tell(err.Error(), "%s", fact)
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	Tell(line, "%s", fact)
}

// Commands are the names of the processes in a group. A process that the runtime is about to turn into
// the container's is waited for: the runtime calls it started a moment before.
func Commands(ctx context.Context, dir string) string {
	var names []string
	err := Await(ctx, 30*time.Second, nil, func(context.Context) error {
		names = nil
		list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(list)) {
			name, err := os.ReadFile("/proc/" + pid + "/comm")
			if err != nil {
				return err
			}
			if strings.HasPrefix(string(name), "runc:") {
				return fmt.Errorf("process %s is still %s", pid, name)
			}
			names = append(names, strings.TrimSpace(string(name)))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return strings.Join(names, " ")
}

// PowerOff ends the machine.
func PowerOff() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		Fail(fmt.Errorf("power off: %w", err))
	}
}
