package report

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on
// every architecture Linux shows to Go programs.
const clockTick = time.Second / 100

// CPUTime is how long the process has run so far: user and system time of all its
// threads, to 10 ms each.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may hold anything.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	const utime, stime = 14 - 3, 15 - 3 // proc(5) counts from 1, and two fields are cut off
	if end < 0 || len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%d/stat is not as expected: %q", pid, text)
	}
	var total time.Duration
	for _, i := range []int{utime, stime} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		total += time.Duration(ticks) * clockTick
	}
	return total, nil
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
