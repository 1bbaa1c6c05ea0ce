package process

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Tick is the unit of times in /proc/PID/stat. The kernel's USER_HZ is 100 on every architecture that Go supports.
const Tick = time.Second / 100

// Stat is the kernel's state of a process or thread (proc_pid_stat(5)).
type Stat struct {
	// State is the kernel's letter for the state: 'Z' for a zombie, 'D' for uninterruptible sleep.
	State  byte
	Parent int
	// CPU is the CPU time that the process or thread has used.
	CPU time.Duration
	// Start is the start time in ticks since the boot. It distinguishes the process from a later one with the same
	// ID.
	Start uint64
}

// ReadStat reads the file at path, such as /proc/1/stat. It returns false if the file is missing (the process has
// ended) or invalid.
func ReadStat(path string) (Stat, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, false
	}
	// The second field is the process's name in parentheses. The name may itself contain parentheses, so the third
	// field begins after the last one.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return Stat{}, false
	}
	failed := false
	number := func(field int) uint64 { // fields are numbered as in proc_pid_stat(5)
		n, err := strconv.ParseUint(string(fields[field-3]), 10, 63)
		failed = failed || err != nil
		return n
	}
	s := Stat{State: fields[0][0], Parent: int(number(4)), CPU: time.Duration(number(14)+number(15)) * Tick,
		Start: number(22)}
	return s, !failed
}
