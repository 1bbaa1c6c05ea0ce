package cgroup

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// refuseBelowUsage fails for a memory limit below the group's usage. On cgroup v1 the kernel refuses it itself; on v2
// it would kill processes (KEP-1287, "Memory Limit Decreases"). The usage may still grow before the limit is set.
func (l layout) refuseBelowUsage(name string, limit int64) error {
	if !l.v2 || limit == 0 {
		return nil
	}
	used, err := l.memory(name)
	if err != nil || used.Usage <= uint64(limit) || used.WorkingSet <= uint64(limit) {
		return err
	}
	return tooMuch(strconv.FormatInt(limit, 10), int64(used.WorkingSet), unix.EBUSY)
}

// memory returns the group's memory usage, without limits.
func (l layout) memory(name string) (counters.Memory, error) {
	m, err := l.reader().Memory(name)
	if err != nil {
		return counters.Memory{}, fmt.Errorf("memory used by %s: %w", name, err)
	}
	return m, nil
}
