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

// Share is what a group may have of the node, all that is in it together. 0, and a size of huge pages that is left out,
// sets no limit.
type Share struct {
	// CPUMilli is for its weight beside other groups, in thousandths of a CPU: it may have more while they are idle.
	CPUMilli int64
	// Memory is in bytes, PIDs a number of processes.
	Memory, PIDs int64
	// HugePages are bytes of each size, as control groups name it: "2MB".
	HugePages map[string]int64
}

// Reserved is a group of the host's own that is held to what is reserved for it.
type Reserved struct {
	// Setting is the one that names the group, for errors; Name is absolute.
	Setting, Name string
	Share         Share
	// Incompressible says that it is held to more than its part of the CPUs.
	Incompressible bool
}

// share are the values of a group that is held to its share.
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

// reserved are the values of one of the host's groups: of what nothing is reserved the host decides itself, and lifted
// lifts what was before.
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

// lifted are the values that lift the limits of one of the host's groups that aren't reserved any more. Its weight
// isn't one, and stays.
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

// EnforceReserved holds the host's own groups to their shares, and has Limit do so from now on. They have to be there:
// which processes are in them is up to the host. A group that uses more memory than its share keeps what it had.
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
			if dir := filepath.Join(l.mounts[s.Controller], g.Name); !exists(dir) {
				return fmt.Errorf("%s: there is no control group %s: make it, or take what it is for out of "+
					"enforceNodeAllocatable", g.Setting, dir)
			}
		}
		// Not by the maker: systemd has the group, if it is a slice, from a unit that says what it may have.
		if g.Incompressible {
			err = l.usesMore(g.Name, g.Share.Memory)
		}
		if err == nil {
			err = write(l, g.Name, list)
		}
		if errors.Is(err, unix.EBUSY) {
			m.log.Error(err, "What is reserved for the host isn't enforced: its control group uses more; it is tried "+
				"again when a reload changes something, or the agent starts", "setting", g.Setting)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.Setting, err)
		}
	}
	return nil
}

// Limit holds all pods together, those of lower QoS classes, and the host's own groups to what c says of them from now
// on; before EnforceReserved was called, which does that then, it changes no group. The rest of c has to be as it was.
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
		return nil // the runtime may have another driver
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
	for i, g := range c.Reserved { // the same groups: only their shares change
		if lifting := write(l, g.Name, m.rules(l).lifted(was[i], g)); lifting != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", g.Setting, lifting))
		}
	}
	return errors.Join(err, m.EnforceReserved(ctx))
}

// enforce holds all pods together to their share. While they use more memory than that it can't be done, and is tried
// again for each new pod: the one above all keeps what it had.
func (m *Manager) enforce(ctx context.Context, l layout) error {
	if m.enforced {
		return nil
	}
	name, share := m.qosCgroup(v1.PodQOSGuaranteed), m.conf.Pods
	if share == nil {
		// what an earlier agent limited is lifted, and the weight is what a group has by itself
		share = &Share{CPUMilli: 1000}
	}
	if _, ok := l.mounts["pids"]; !ok {
		without := *share
		without.PIDs, share = 0, &without
	}
	// Pods' own groups are made in this hierarchy only where each of them is limited.
	if dir, ok := l.mounts["pids"]; ok && share.PIDs > 0 && !l.v2 && !slices.Contains(l.used, "pids") {
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
			m.log.Error(err, "All pods together aren't held to what the node has for them yet: they use more; it is "+
				"tried again when the next pod starts")
		}
		return nil
	}
	m.enforced = err == nil
	return err
}

// usesMore is an error (unix.EBUSY) if the group uses more memory than that, in bytes. Cgroup v2 would take such a
// limit, and kill what is in the group.
func (l layout) usesMore(name string, limit int64) error {
	if limit == 0 {
		return nil
	}
	used, err := l.memory(name)
	if err == nil && used.WorkingSet > uint64(limit) {
		err = fmt.Errorf("control group %s uses %d bytes of memory, and may have %d: %w", name, used.WorkingSet, limit,
			unix.EBUSY)
	}
	return err
}

// unlimited is what cgroup v1 shows of a limit that there isn't, or nearly.
const unlimited = 1 << 62
