package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// A group stays busy for a moment after its last process was killed. Cgroup v1 sends no notification when the group
// isn't busy any more, so the removal is retried, for about 1.3 s in total.
const (
	firstPause = 5 * time.Millisecond
	removals   = 9
)

// Remove removes the pod's groups from every QoS cgroup and hierarchy. It kills processes that are still in them: the
// runtime has reported that it has nothing left of the pod. It is no error if there are no groups.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if err := m.remove(ctx, uid); err != nil {
		return fmt.Errorf("remove cgroup of pod %q: %w", uid, err)
	}
	return nil
}

func (m *Manager) remove(ctx context.Context, uid types.UID) error {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	pause := firstPause
	for try := 1; ; try++ {
		err := m.removeOnce(ctx, l, uid)
		if err == nil {
			return m.discount(ctx, l, uid)
		}
		if try == removals {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (m *Manager) removeOnce(ctx context.Context, l hierarchies, uid types.UID) error {
	var errs []error
	for _, class := range tree.Classes {
		errs = append(errs, m.removeFrom(ctx, l, m.GroupOf(class, uid)))
	}
	return errors.Join(errs...)
}

// removeFrom removes the pod's group with this name. It removes the directories last: while one exists, the group is
// found again after a failure.
func (m *Manager) removeFrom(ctx context.Context, l hierarchies, name string) error {
	dirs, err := l.dirs(name)
	if err != nil || len(dirs) == 0 {
		return err
	}
	if m.Driver == tree.DriverSystemd {
		// If systemd killed the processes, it would send SIGTERM first, and wait.
		for _, dir := range dirs {
			if err := m.killBelow(dir); err != nil {
				return err
			}
		}
	}
	if err := m.maker.stop(ctx, name); err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, m.removeGroup(dir))
	}
	return errors.Join(errs...)
}

// killBelow kills the processes in the group and its children.
func (m *Manager) killBelow(dir string) error {
	groups, err := groupsBelow(dir)
	for _, g := range groups {
		m.killIn(g)
	}
	return err
}

// removeGroup removes a group and its children. It kills processes only if they prevent the removal.
func (m *Manager) removeGroup(dir string) error {
	switch err := unix.Rmdir(dir); err {
	case nil, unix.ENOENT:
		return nil
	case unix.EBUSY, unix.ENOTEMPTY:
	default:
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	groups, err := groupsBelow(dir)
	if err != nil {
		return err
	}
	for _, g := range slices.Backward(groups) {
		m.killIn(g)
		if rmErr := unix.Rmdir(g); rmErr != nil && !errors.Is(rmErr, unix.ENOENT) {
			err = &fs.PathError{Op: "rmdir", Path: g, Err: rmErr}
		}
	}
	return err
}

// groupsBelow lists the group and all its descendants, parents first.
func groupsBelow(dir string) ([]string, error) {
	var groups []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil && d.IsDir() {
			groups = append(groups, p)
		}
		return err
	})
	return groups, err
}
