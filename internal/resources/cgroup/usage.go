package cgroup

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// refuseBelowUsage fails for a memory limit below the group's usage. On cgroup v1 the kernel refuses it itself; on v2
// it would kill processes (KEP-1287, "Memory Limit Decreases"). The usage may still grow before the limit is set.
func (l hierarchies) refuseBelowUsage(name string, limit int64) error {
	if !l.V2 || limit == 0 {
		return nil
	}
	used, err := l.Memory(name)
	if err != nil || used.Usage <= uint64(limit) || used.WorkingSet <= uint64(limit) {
		return err
	}
	return tooMuch(strconv.FormatInt(limit, 10), int64(used.WorkingSet), unix.EBUSY)
}
