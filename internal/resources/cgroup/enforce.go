package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// Share describes the resources of the node that a group may use in total. 0, or a missing size of huge pages, is no
// limit.
type Share struct {
	// CPUMilli determines the group's CPU weight, in thousandths of a CPU. While other groups are idle, the group may
	// use more.
	CPUMilli int64
	// Memory is a limit in bytes, PIDs a limit of the number of processes.
	Memory, PIDs int64
	// HugePages are bytes by page size, as in names of cgroup files: "2MB".
	HugePages map[string]int64
}

// Reserved is a cgroup of the host that is limited to the resources reserved for it.
type Reserved struct {
	// Setting is the configuration field that names the group, for errors. Name is an absolute path.
	Setting, Name string
	Share         Share
	// Incompressible enforces memory and PIDs in addition to the CPU weight.
	Incompressible bool
}

// share returns the values that limit a group to its share.
func (r rules) share(s Share) []setting {
	list := []setting{r.Shares(allocated.Shares(s.CPUMilli)), r.memory(s.Memory), rules{PIDs: s.PIDs}.pids()}
	for _, size := range r.HugePages {
		bytes, ok := s.HugePages[size]
		if !ok {
			bytes = -1
		}
		list = append(list, r.hugePages(size, bytes)...)
	}
	return list
}

// reserved returns the values for one of the host's groups. Resources without a reservation are omitted: the host sets
// their values itself, and lifted removes earlier limits.
func (r rules) reserved(g Reserved) []setting {
	var list []setting
	if s := g.Share; s.CPUMilli > 0 {
		list = append(list, r.Shares(allocated.Shares(s.CPUMilli)))
	}
	if s := g.Share; g.Incompressible && s.Memory > 0 {
		list = append(list, r.memory(s.Memory))
	}
	if s := g.Share; g.Incompressible && s.PIDs > 0 {
		list = append(list, rules{PIDs: s.PIDs}.pids())
	}
	return list
}

// lifted returns the values that remove the limits of one of the host's groups for resources that aren't reserved any
// more. The CPU weight isn't a limit, so it isn't removed.
func (r rules) lifted(was, now Reserved) []setting {
	var list []setting
	if was.Incompressible && was.Share.Memory > 0 && now.Share.Memory == 0 {
		list = append(list, r.memory(0))
	}
	if was.Incompressible && was.Share.PIDs > 0 && now.Share.PIDs == 0 {
		list = append(list, rules{}.pids())
	}
	return list
}

// EnforceReserved limits the host's own groups to their shares. From now on, Limit also changes these limits. The
// groups have to exist: the host decides which processes are in them. A group that uses more memory than its share
// keeps its previous limit.
func (m *Manager) EnforceReserved(ctx context.Context) error {
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	reserved := m.conf.Reserved
	m.enforces = true
	m.mu.Unlock()
	for _, g := range reserved {
		list := m.rules(l).reserved(g)
		for _, s := range list {
			if dir := filepath.Join(l.Mounts[s.Controller], g.Name); !exists(dir) {
				return fmt.Errorf("%s: control group %s doesn't exist: create it, or remove its entry from "+
					"enforceNodeAllocatable", g.Setting, dir)
			}
		}
		// The maker isn't used to write the values: if the group is a slice, its limits in systemd are those of its
		// unit file.
		if g.Incompressible {
			err = l.usesMore(g.Name, g.Share.Memory)
		}
		if err == nil {
			err = write(l, g.Name, list)
		}
		if errors.Is(err, unix.EBUSY) {
			m.log.Error(err, "Reserved resources aren't enforced: their control group uses more; retrying after a "+
				"reload with changes, or when the agent starts", "setting", g.Setting)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.Setting, err)
		}
	}
	return nil
}

// Limit applies the changed limits of c: those of all pods together, of lower QoS classes and of the host's own groups.
// The limits of the host's own groups are applied by the first EnforceReserved; before that, Limit doesn't change these
// groups. All other fields of c must be as before.
func (m *Manager) Limit(ctx context.Context, c Config) error {
	m.mu.Lock()
	was := m.conf.Reserved
	m.conf.Pods, m.conf.Reserved, m.enforced = c.Pods, c.Reserved, false
	if m.conf.QOSReserve != nil && c.QOSReserve != nil {
		m.conf.QOSReserve.Memory = c.QOSReserve.Memory
	}
	enforces := m.enforces
	m.mu.Unlock()
	if !enforces {
		return nil // the runtime may use another driver
	}
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	made := m.made
	if made {
		err = m.enforce(ctx, l)
	}
	m.mu.Unlock()
	if made {
		err = errors.Join(err, m.updateQoS(ctx, l, func() {}))
	}
	for i, g := range c.Reserved { // the same groups with other shares
		if lifting := write(l, g.Name, m.rules(l).lifted(was[i], g)); lifting != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", g.Setting, lifting))
		}
	}
	return errors.Join(err, m.EnforceReserved(ctx))
}

// enforce limits the total of all pods to their share of the node. If they already use more memory than that, the group
// kubepods keeps its previous limit, and enforce is called again for each new pod. The caller holds the lock.
func (m *Manager) enforce(ctx context.Context, l hierarchies) error {
	if m.enforced {
		return nil
	}
	name, share := m.QoSCgroup(v1.PodQOSGuaranteed), m.conf.Pods
	if share == nil {
		// Remove the limits of an earlier agent. The CPU weight is the kernel's default.
		share = &Share{CPUMilli: 1000}
	}
	if _, ok := l.Mounts["pids"]; !ok {
		without := *share
		without.PIDs, share = 0, &without
	}
	// On cgroup v1, pods' own groups in this hierarchy are created only if each pod is limited.
	if dir, ok := l.Mounts["pids"]; ok && share.PIDs > 0 && !l.V2 && !slices.Contains(l.used, "pids") {
		if err := l.makeWithParents(dir, name); err != nil {
			return err
		}
	}
	err := l.usesMore(name, share.Memory)
	if err == nil {
		err = m.maker.set(ctx, l, name, m.rules(l).share(*share))
	}
	if errors.Is(err, unix.EBUSY) {
		if text := err.Error(); text != m.unenforced {
			m.unenforced = text
			m.log.Error(err, "Node allocatable isn't enforced yet: pods use more than the limit; retrying when the "+
				"next pod starts")
		}
		return nil
	}
	m.enforced = err == nil
	return err
}

// usesMore returns an error (unix.EBUSY) if the group uses more memory than limit, in bytes. Cgroup v2 would accept
// such a limit and kill processes of the group.
func (l hierarchies) usesMore(name string, limit int64) error {
	if limit == 0 {
		return nil
	}
	used, err := l.Memory(name)
	if err == nil && used.WorkingSet > uint64(limit) {
		err = fmt.Errorf("control group %s uses %d bytes of memory, and may have %d: %w", name, used.WorkingSet, limit,
			unix.EBUSY)
	}
	return err
}
