package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Usage returns the pod's working set in bytes: the memory charged to it without inactive page cache. The error is
// fs.ErrNotExist if the pod has no group.
func (m *Manager) Usage(ctx context.Context, uid types.UID) (memoryBytes int64, err error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return 0, err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return 0, err
	}
	for _, class := range classes {
		used, err := l.memory(m.name(class, uid))
		if !errors.Is(err, fs.ErrNotExist) {
			return int64(used.WorkingSet), err
		}
	}
	return 0, fmt.Errorf("memory used by pod %q: it has no cgroup: %w", uid, fs.ErrNotExist)
}

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
