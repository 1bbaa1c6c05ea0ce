package capacity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tasks describes the host's tasks: its processes, with each thread counted separately.
type Tasks struct {
	// Count is the number of existing tasks.
	Count int64
	// Max is the maximum number of tasks: the lower of kernel.pid_max and kernel.threads-max; 0 if it can't be read.
	Max int64
}

// ReadTasks reads the tasks of the host whose file system is at root.
func ReadTasks(root string) (Tasks, error) {
	count, err := CountTasks(root)
	if err != nil {
		return Tasks{}, err
	}
	return Tasks{Count: count, Max: MaxTasks(root)}, nil
}

// CountTasks returns Tasks.Count alone. It reads a single file.
func CountTasks(root string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/loadavg"))
	if err != nil {
		return 0, fmt.Errorf("count the tasks of this node: %w", err)
	}
	// The fourth field is RUNNABLE/EXISTING (proc_loadavg(5)).
	if fields := strings.Fields(string(text)); len(fields) >= 4 {
		_, existing, _ := strings.Cut(fields[3], "/")
		if count, ok := positive(existing); ok {
			return count, nil
		}
	}
	return 0, fmt.Errorf("count the tasks of this node: /proc/loadavg is %q", text[:min(len(text), 80)])
}

// MaxTasks returns Tasks.Max alone.
func MaxTasks(root string) int64 {
	var most int64
	for _, file := range [...]string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue // the kernel still enforces it
		}
		if n, ok := positive(strings.TrimSpace(string(text))); ok && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

// positive parses a positive number for which the kernel uses an int.
func positive(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return n, err == nil && n > 0
}
