package tree

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/opencontainers/cgroups"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// OwnLimits are the limits of the groups that this process is in, and of the ancestors of these groups.
type OwnLimits struct {
	// Memory is the lowest limit of memory, in bytes, or counters.Unlimited.
	Memory uint64
	// Processes is how many more processes and threads the groups may have, or counters.Unlimited.
	Processes uint64
}

// ReadOwnLimits reads the limits of this process's groups. A group that isn't visible, as in a container, counts as one
// without limits.
func ReadOwnLimits() (OwnLimits, error) {
	own := OwnLimits{Memory: counters.Unlimited, Processes: counters.Unlimited}
	l, err := Find()
	if err != nil {
		return own, err
	}
	groups, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return own, fmt.Errorf("find this process's control groups: %w", err)
	}
	r := l.Reader()
	var errs []error
	each := func(controller string, read func(group string) error) {
		if l.Mounts[controller] == "" {
			return
		}
		for group := path.Join("/", cmp.Or(groups[controller], groups[""])); ; group = path.Dir(group) {
			if err := read(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("read the limits of control group %s: %w", group, err))
			}
			if group == "/" {
				return
			}
		}
	}
	each("memory", func(group string) error {
		m, err := r.MemoryAndLimit(group)
		if err == nil {
			own.Memory = min(own.Memory, m.Limit)
		}
		return err
	})
	each("pids", func(group string) error {
		p, err := r.PIDs(group)
		if err == nil && p.Limit != counters.Unlimited {
			own.Processes = min(own.Processes, p.Limit-min(p.Current, p.Limit))
		}
		return err
	})
	return own, errors.Join(errs...)
}

// Own returns the name of the group that this process is in. It is empty if that is the root, or differs between
// hierarchies.
func Own() string {
	groups, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own, v1 := groups["memory"]
	if !v1 {
		own = groups[""]
	}
	if cpu, ok := groups["cpu"]; own == "/" || ok && cpu != own {
		return ""
	}
	return own
}
