package report

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is how long processes have run so far: user and system time of all their threads.
func CPUTime(pids ...int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		var used unix.Timespec
		if err := unix.ClockGettime(cpuClock(pid), &used); err != nil { // /proc/PID/stat has hundredths of a second
			return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
		}
		total += time.Duration(used.Nano())
	}
	return total, nil
}

// cpuClock is the number of the clock of a process's CPU time, as clock_getcpuclockid(3) makes it.
func cpuClock(pid int) int32 {
	const ofProcess = 2 // what the scheduler has counted, of all threads
	return int32(^pid)<<3 | ofProcess
}

// Memory is what a process holds, in bytes.
type Memory struct {
	// RSS is all of its pages in memory; PSS counts shared ones by their share.
	RSS, PSS int64
}

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	var errs []error
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var to *int64
		switch fields[0] {
		case "Rss:":
			to = &m.RSS
		case "Pss:":
			to = &m.PSS
		default:
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		errs = append(errs, err)
		*to = kib << 10
	}
	if m.RSS == 0 {
		errs = append(errs, fmt.Errorf("/proc/%d/smaps_rollup doesn't tell Rss", pid))
	}
	return m, errors.Join(errs...)
}
