package process

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every architecture that Go knows.
const Tick = time.Second / 100

// Stat is the kernel's state of a process or thread (proc_pid_stat(5)).
type Stat struct {
	// State is a letter: 'Z' for a zombie, 'D' for uninterruptible sleep.
	State  byte
	Parent int
	// CPU is the time that it has used.
	CPU time.Duration
	// Start is when it was started, in ticks since the boot: it tells the process from a later one of the same number.
	Start uint64
}

// ReadStat reads the file at path, such as /proc/1/stat. It is false if there is none (the process has ended) or it
// can't be understood.
func ReadStat(path string) (Stat, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, false
	}
	// The second field is a name in parentheses, which may hold anything: the third comes after the last one.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return Stat{}, false
	}
	failed := false
	number := func(field int) uint64 { // as proc_pid_stat(5) counts them
		n, err := strconv.ParseUint(string(fields[field-3]), 10, 63)
		failed = failed || err != nil
		return n
	}
	s := Stat{State: fields[0][0], Parent: int(number(4)), CPU: time.Duration(number(14)+number(15)) * Tick,
		Start: number(22)}
	return s, !failed
}
