package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// NodeMemory is the memory that all pods and the host's other processes share.
type NodeMemory struct {
	// Group is the group whose usage and limit these are. "/" is the machine or, if the agent runs in a container, the
	// container's group.
	Group string
	// Memory.Limit is never more than the machine's memory.
	counters.Memory
}

// Available returns how much of the limit isn't part of the working set, in bytes.
func (n *NodeMemory) Available() uint64 { return n.Limit - min(n.WorkingSet, n.Limit) }

// NodeMemory returns the memory of the machine or, if less is available there, of a group with a limit: the agent's
// container, the parent of kubepods or a group above it. It doesn't use MemAvailable of /proc/meminfo, which counts
// page cache differently from the kubelet and ignores the limits of groups.
func (t *Tree) NodeMemory(r *counters.Reader) (NodeMemory, error) {
	var least NodeMemory
	for group := path.Dir(t.PodsGroup()); ; group = path.Dir(group) {
		memory, err := r.MemoryAndLimit(group)
		if err != nil && (group == "/" || !errors.Is(err, fs.ErrNotExist)) { // the first pod creates it
			return NodeMemory{}, fmt.Errorf("read the node's memory usage: %w", err)
		}
		if err == nil {
			memory.Limit = min(memory.Limit, uint64(t.memory))
			if n := (NodeMemory{group, memory}); least.Group == "" || n.Available() <= least.Available() {
				least = n
			}
		}
		if group == "/" {
			return least, nil
		}
	}
}

// MemoryFiles are the files by which the kernel reports events about the memory of a group (package host/alarm). They
// may not exist: with cgroup v1 and v2 on one host, for example, not every runtime creates its groups on v2, too.
type MemoryFiles struct {
	// Thresholds is the group's directory on cgroup v1, which supports thresholds of the usage; empty on v2.
	Thresholds string
	// Events is the group's memory.events; empty on cgroup v1, and for the machine.
	Events string
	// Pressure is the group's memory.pressure; empty if the host has no cgroup v2, not even beside v1.
	Pressure string
}

// MemoryFiles returns the MemoryFiles of a group.
func (t *Tree) MemoryFiles(ctx context.Context, group string) (MemoryFiles, error) {
	l, err := t.Layout(ctx)
	if err != nil {
		return MemoryFiles{}, err
	}
	var f MemoryFiles
	if l.Unified != "" {
		f.Pressure = filepath.Join(l.Unified, group, "memory.pressure")
	}
	if group == "/" && unix.Access(f.Pressure, unix.F_OK) != nil {
		f.Pressure = "/proc/pressure/memory"
	}
	dir := filepath.Join(l.Mounts["memory"], group)
	if !l.V2 {
		f.Thresholds = dir
	} else if file := filepath.Join(dir, "memory.events"); group != "/" || unix.Access(file, unix.F_OK) == nil {
		f.Events = file
	}
	return f, nil
}
