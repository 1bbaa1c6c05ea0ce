package resources

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
	"github.com/deckhand-node/deckhand/internal/resources/knob"
)

// ensureTiers makes the groups above the pods' once, and counts the pods in them.
func (m *Manager) ensureTiers(l layout) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tiers {
		return nil
	}
	if err := l.check(); err != nil {
		return err
	}
	for _, class := range classes {
		for _, mount := range l.limited() {
			if err := l.makeDown(mount, m.tier(class)); err != nil {
				return err
			}
		}
	}
	// Best-effort pods get what nobody else wants.
	least := m.rules(l).Shares(cpuunits.MinShares)
	if err := write(l, m.tier(v1.PodQOSBestEffort), []knob.Setting{least}); err != nil {
		return err
	}
	if !m.conf.ReserveMemory {
		// An earlier agent may have: what is protected below counts only as far as here.
		if err := m.protect(l, 0, 0); err != nil {
			return err
		}
	}
	m.recall(l)
	m.tiers = true
	return nil
}

func (m *Manager) forgetTiers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tiers, m.written = false, sums{}
}

// makeDown makes the group and those it is in. On cgroup v2 it also hands the
// used controllers down, which is what makes their files appear below.
func (l layout) makeDown(mount, name string) error {
	dir := mount
	for element := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if l.v2 {
			if err := l.handDown(dir); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, element)
		if err := makeGroup(dir); err != nil {
			return err
		}
	}
	if l.v2 {
		return l.handDown(dir)
	}
	return nil
}

func (l layout) handDown(dir string) error {
	const file = "cgroup.subtree_control"
	have, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return fmt.Errorf("hand cgroup controllers down from %s: %w", dir, err)
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
		return fmt.Errorf("hand cgroup controllers down from %s: processes are in that group itself, which cgroup v2 forbids: move them into a group of their own below it", dir)
	}
	if err != nil {
		return fmt.Errorf("hand cgroup controllers down from %s: %w", dir, err)
	}
	return nil
}

// RemoveTiers removes the groups above the pods' up to CgroupRoot and what that is
// in, as far as they are empty: for taking everything down when no pods are left.
// It removes no pod's group.
func (m *Manager) RemoveTiers(ctx context.Context) error {
	l, err := m.usable(ctx)
	if err != nil {
		return fmt.Errorf("remove cgroup tiers: %w", err)
	}
	m.forgetTiers()
	names := []string{m.tier(v1.PodQOSBurstable), m.tier(v1.PodQOSBestEffort), m.tier(v1.PodQOSGuaranteed)}
	for up := m.conf.CgroupRoot; up != "/"; up = path.Dir(up) {
		names = append(names, up)
	}
	var errs []error
	for _, mount := range l.all {
		for _, name := range names {
			dir := filepath.Join(mount, name)
			switch err := unix.Rmdir(dir); err {
			case nil, unix.ENOENT, unix.ENOTEMPTY, unix.EBUSY:
			default:
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
