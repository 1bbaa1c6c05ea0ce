package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// EnsureQoSCgroups creates the QoS cgroups before the first pod needs them: other programs expect them on a node that
// is ready, as with the kubelet.
func (m *Manager) EnsureQoSCgroups(ctx context.Context) error {
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	return m.ensureQoSCgroups(ctx, l)
}

// ensureQoSCgroups creates the QoS cgroups once, and counts the requests of the pods in them.
func (m *Manager) ensureQoSCgroups(ctx context.Context, l hierarchies) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made {
		return m.enforce(ctx, l)
	}
	if err := l.check(); err != nil {
		return err
	}
	for _, class := range tree.Classes {
		if err := m.maker.qosCgroup(ctx, l, m.QoSCgroup(class)); err != nil {
			return err
		}
	}
	// Best-effort pods get the CPU time that no other pod uses.
	least := m.rules(l).Shares(allocated.MinShares)
	if err := m.maker.set(ctx, l, m.QoSCgroup(v1.PodQOSBestEffort), []setting{least}); err != nil {
		return err
	}
	if !m.conf.ReserveMemory {
		// An earlier agent may have set memory protection. Pods are protected only as far as their QoS cgroups are.
		if err := m.protect(ctx, l, 0, 0); err != nil {
			return err
		}
	}
	if err := m.liftQoSLimits(ctx, l); err != nil {
		return err
	}
	m.restore(l)
	m.made = true
	return m.enforce(ctx, l)
}

func (m *Manager) forgetQoSCgroups() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made, m.enforced, m.written = false, false, sums{}
	clear(m.limits)
}

func (l hierarchies) enableControllers(dir string) error {
	const file = "cgroup.subtree_control"
	have, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return fmt.Errorf("enable cgroup controllers in %s: %w", dir, err)
	}
	var missing []string
	for _, controller := range l.used {
		if !slices.Contains(strings.Fields(have), controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err = cgroups.WriteFile(dir, file, strings.Join(missing, " "))
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("enable cgroup controllers in %s: processes are in that group itself, which cgroup v2 "+
			"forbids: move them into a child group", dir)
	}
	if err != nil {
		return fmt.Errorf("enable cgroup controllers in %s: %w", dir, err)
	}
	return nil
}

// RemoveQoSCgroups removes the empty QoS cgroups up to CgroupRoot and its parents: for a reset, when no pods are
// left. It removes no pod's group.
func (m *Manager) RemoveQoSCgroups(ctx context.Context) error {
	l, err := m.usable(ctx)
	if err != nil {
		return fmt.Errorf("remove QoS cgroups: %w", err)
	}
	m.forgetQoSCgroups()
	names := []string{m.QoSCgroup(v1.PodQOSBurstable), m.QoSCgroup(v1.PodQOSBestEffort)}
	for name := m.PodsGroup(); name != "/"; name = path.Dir(name) {
		names = append(names, name)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, m.removeIfEmpty(ctx, l, name))
	}
	return errors.Join(errs...)
}

// removeIfEmpty removes a group that has neither processes nor children.
func (m *Manager) removeIfEmpty(ctx context.Context, l hierarchies, name string) error {
	dirs, err := l.dirs(name)
	if err != nil || len(dirs) == 0 {
		return err
	}
	for _, dir := range dirs {
		switch err := unix.Rmdir(dir); err {
		case nil, unix.ENOENT:
		case unix.ENOTEMPTY, unix.EBUSY:
			return nil
		default:
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	// The unit is stopped last, because that would also stop processes in the group.
	return m.maker.stop(ctx, name)
}
