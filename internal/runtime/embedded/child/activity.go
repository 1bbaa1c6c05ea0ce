package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Activity is what a process has done, and does at the moment.
type Activity struct {
	// CPU is the time that it has used.
	CPU time.Duration
	// Blocked says that one of its threads is in uninterruptible sleep (state D of proc(5)), mostly waiting for a disk.
	// The process can't end before that does, also when it is killed.
	Blocked bool
}

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every architecture that Go knows.
const tick = time.Second / 100

// Activity reads what the process does from /proc; of one that has ended it is zero.
func (p *Process) Activity() Activity {
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	var a Activity
	if fields := statFields(filepath.Join(dir, "stat")); len(fields) > 12 {
		for _, field := range fields[11:13] { // utime, stime
			n, _ := strconv.ParseInt(string(field), 10, 64) // 0 if it isn't one
			a.CPU += time.Duration(n) * tick
		}
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return a
	}
	for _, t := range threads {
		if fields := statFields(filepath.Join(dir, "task", t.Name(), "stat")); len(fields) > 0 && string(fields[0]) == "D" {
			a.Blocked = true
			break
		}
	}
	return a
}

// Age is the time since the process was started, 0 if that isn't known.
func (p *Process) Age() time.Duration {
	fields := statFields(filepath.Join("/proc", strconv.Itoa(p.pid), "stat"))
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil || len(fields) <= 19 {
		return 0
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64) // starttime
	if err != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(ticks)*tick
}

// statFields are the fields of a stat file (proc(5)) from the state on, the third.
func statFields(path string) [][]byte {
	stat, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	// The name, in parentheses, may hold anything: the state comes after the last one.
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
}
