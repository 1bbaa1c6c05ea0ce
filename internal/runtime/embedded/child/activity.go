package child

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

// Activity is what a process has done, and does at the moment.
type Activity struct {
	// CPU is the time that it has used.
	CPU time.Duration
	// Blocked says that one of its threads is in uninterruptible sleep (state D of proc(5)), mostly waiting for a disk.
	// The process can't end before that does, also when it is killed.
	Blocked bool
}

// Activity reads what the process does from /proc; of one that has ended it is zero.
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

// Age is the time since the process was started, 0 if that isn't known.
func (p *Process) Age() time.Duration {
	stat, known := process.ReadStat(filepath.Join("/proc", strconv.Itoa(p.pid), "stat"))
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil || !known {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(stat.Start)*process.Tick
}
