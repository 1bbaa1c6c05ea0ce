package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Usage is how much memory the pod uses, in bytes: its working set, which is all
// that is charged to it but for the files in its page cache that weren't used
// lately. The error is fs.ErrNotExist where the pod has no group.
func (m *Manager) Usage(ctx context.Context, uid types.UID) (memoryBytes int64, err error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return 0, err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return 0, err
	}
	for _, class := range classes {
		used, err := workingSet(filepath.Join(l.mounts["memory"], m.name(class, uid)), l.v2)
		if !errors.Is(err, fs.ErrNotExist) {
			return used, err
		}
	}
	return 0, fmt.Errorf("memory used by pod %q: it has no cgroup: %w", uid, fs.ErrNotExist)
}

// workingSet is what the group can't easily give back, in bytes.
func workingSet(dir string, v2 bool) (int64, error) {
	all, err := charged(dir, v2)
	if err != nil {
		return 0, err
	}
	key := "total_inactive_file"
	if v2 {
		key = "inactive_file"
	}
	stat, err := cgroups.ReadFile(dir, "memory.stat")
	if err != nil {
		return 0, fmt.Errorf("memory used by %s: %w", dir, err)
	}
	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			idle, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("memory used by %s: %s: %w", dir, key, err)
			}
			return max(all-idle, 0), nil
		}
	}
	return all, nil
}

// charged is all memory that is charged to the group, in bytes.
func charged(dir string, v2 bool) (int64, error) {
	file := "memory.usage_in_bytes"
	if v2 {
		file = "memory.current"
	}
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0, fmt.Errorf("memory used by %s: %w", dir, err)
	}
	all, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory used by %s: %w", dir, err)
	}
	return all, nil
}

// refuseBelowUsage fails for a memory limit below what the named group uses. cgroup v1's kernel
// refuses it itself; that of v2 would kill until the limit is kept (KEP-1287,
// "Memory Limit Decreases"). What is used may have grown by the time the limit is set.
func (l layout) refuseBelowUsage(name string, limit int64) error {
	if !l.v2 || limit == 0 {
		return nil
	}
	dir := filepath.Join(l.mounts["memory"], name)
	if all, err := charged(dir, l.v2); err != nil || all <= limit {
		return err
	}
	used, err := workingSet(dir, l.v2)
	if err != nil || used <= limit {
		return err
	}
	return tooMuch(strconv.FormatInt(limit, 10), used, unix.EBUSY)
}
