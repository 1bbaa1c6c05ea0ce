package cgroup

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// maker creates groups as a cgroup driver does. A group's name is its path relative to the hierarchy's mount point.
type maker interface {
	// check returns nil if the driver works here, or else the reason in one line.
	check() error
	// qosCgroup creates a group that contains pods' groups, and its parents.
	qosCgroup(ctx context.Context, l hierarchies, name string) error
	// pod creates a pod's group in a QoS cgroup. The error is fs.ErrNotExist if the QoS cgroup doesn't exist. made
	// means that the group is new and the settings are in force.
	pod(ctx context.Context, l hierarchies, name string, s []setting) (made bool, err error)
	// set writes the settings of a group.
	set(ctx context.Context, l hierarchies, name string, s []setting) error
	// stop stops a group's systemd unit, if it has one, and leaves the directories. The group must have no processes.
	stop(ctx context.Context, name string) error
	close()
}

func makerOf(d tree.Driver) maker {
	if d == tree.DriverSystemd {
		return systemdSlices{systemd: &systemdBus{}}
	}
	return cgroupDirs{}
}

// cgroupDirs creates groups as directories of the cgroup file system.
type cgroupDirs struct{}

func (cgroupDirs) check() error { return nil }

func (cgroupDirs) qosCgroup(_ context.Context, l hierarchies, name string) error {
	for _, mount := range l.limited() {
		if err := l.makeWithParents(mount, name); err != nil {
			return err
		}
	}
	return nil
}

func (cgroupDirs) pod(_ context.Context, l hierarchies, name string, s []setting) (bool, error) {
	made, err := l.makeAll(name)
	if err != nil || !made {
		return false, err
	}
	return true, write(l, name, slices.DeleteFunc(s, func(v setting) bool { return v.Initial }))
}

// makeAll creates the group in all hierarchies that limits are written to. made means that the group existed in none of
// them before.
func (l hierarchies) makeAll(name string) (made bool, err error) {
	made = true
	for _, mount := range l.limited() {
		isNew, err := makeGroup(filepath.Join(mount, name))
		if err != nil {
			return false, err
		}
		made = made && isNew
	}
	return made, nil
}

func (cgroupDirs) set(_ context.Context, l hierarchies, name string, s []setting) error {
	return write(l, name, s)
}

func (cgroupDirs) stop(context.Context, string) error { return nil }

func (cgroupDirs) close() {}

// systemdManager manages slices of systemd. *systemdBus implements it.
type systemdManager interface {
	Start(ctx context.Context, group string, s []setting) (made bool, err error)
	Set(ctx context.Context, group string, s []setting) error
	Stop(ctx context.Context, group string) error
	Close()
}

// systemdSlices creates groups as slices of systemd. It also writes the groups' files itself: systemd doesn't support
// all files, and doesn't report values that the kernel refuses.
type systemdSlices struct {
	cgroupDirs
	systemd systemdManager
}

func (systemdSlices) check() error { return systemdRunning() }

func (u systemdSlices) qosCgroup(ctx context.Context, l hierarchies, name string) error {
	if _, err := u.systemd.Start(ctx, name, nil); err != nil {
		return err
	}
	return u.cgroupDirs.qosCgroup(ctx, l, name)
}

func (u systemdSlices) pod(ctx context.Context, l hierarchies, name string, s []setting) (bool, error) {
	// Systemd would create a missing QoS cgroup, but without a CPU weight.
	for _, mount := range l.limited() {
		if _, err := os.Lstat(filepath.Join(mount, path.Dir(name))); err != nil {
			return false, err
		}
	}
	made, err := u.systemd.Start(ctx, name, s)
	if err != nil {
		return false, err
	}
	if _, err := l.makeAll(name); err != nil || !made {
		return false, err
	}
	return true, write(l, name, s)
}

// set calls systemd last, so that systemd doesn't get values that the kernel refuses.
func (u systemdSlices) set(ctx context.Context, l hierarchies, name string, s []setting) error {
	if err := write(l, name, s); err != nil {
		return err
	}
	return u.systemd.Set(ctx, name, s)
}

func (u systemdSlices) stop(ctx context.Context, name string) error { return u.systemd.Stop(ctx, name) }

func (u systemdSlices) close() { u.systemd.Close() }

// makeWithParents creates the group and its parents. On cgroup v2 it also enables the used controllers for the
// children, so that their files appear there.
func (l hierarchies) makeWithParents(mount, name string) error {
	dir := mount
	for element := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if l.V2 {
			if err := l.enableControllers(dir); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, element)
		if _, err := makeGroup(dir); err != nil {
			return err
		}
	}
	if l.V2 {
		return l.enableControllers(dir)
	}
	return nil
}

// dirs returns the group's existing directories in all hierarchies.
func (l hierarchies) dirs(name string) ([]string, error) {
	var dirs []string
	for _, mount := range l.All {
		dir := filepath.Join(mount, name)
		switch err := unix.Access(dir, unix.F_OK); err {
		case nil:
			dirs = append(dirs, dir)
		case unix.ENOENT:
		default:
			return nil, &fs.PathError{Op: "look for", Path: dir, Err: err}
		}
	}
	return dirs, nil
}
