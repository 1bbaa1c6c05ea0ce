package child

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/clock"
	"github.com/deckhand-node/deckhand/internal/host/process"
)

// Activity is a process's CPU usage and current state.
type Activity struct {
	// CPU is the CPU time used so far.
	CPU time.Duration
	// Blocked means that one of the process's threads is in uninterruptible sleep (state D of proc(5)), mostly waiting
	// for a disk. Until that sleep ends, even a killed process doesn't end.
	Blocked bool
}

// Activity reads the process's state from /proc; it is zero for a process that has ended.
func (p *Process) Activity() Activity {
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	var a Activity
	if stat, ok := process.ReadStat(filepath.Join(dir, "stat")); ok {
		a.CPU = stat.CPU
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return a
	}
	for _, t := range threads {
		if stat, ok := process.ReadStat(filepath.Join(dir, "task", t.Name(), "stat")); ok && stat.State == 'D' {
			a.Blocked = true
			break
		}
	}
	return a
}

// Age returns the time since the process was started, 0 if that can't be determined.
func (p *Process) Age() time.Duration {
	stat, known := process.ReadStat(filepath.Join("/proc", strconv.Itoa(p.pid), "stat"))
	if !known {
		return 0
	}
	return clock.SinceBoot() - time.Duration(stat.Start)*process.Tick
}
