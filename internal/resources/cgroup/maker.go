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
)

// maker makes groups the way a driver does. A group's name is its path below where
// a hierarchy is mounted.
type maker interface {
	// check returns in one line why the driver doesn't work here, or nil.
	check() error
	// qosCgroup makes a group that holds pods' groups, and its parents.
	qosCgroup(ctx context.Context, l layout, name string) error
	// pod makes a pod's group in a QoS cgroup. The error is fs.ErrNotExist if that isn't there.
	// made says that the group is new, and the settings are in force.
	pod(ctx context.Context, l layout, name string, s []setting) (made bool, err error)
	// set sets values in a group.
	set(ctx context.Context, l layout, name string, s []setting) error
	// stop ends what there is of a group besides its directories; there must be no process in it.
	stop(ctx context.Context, name string) error
	close()
}

func makerOf(d Driver) maker {
	if d == DriverSystemd {
		return systemdSlices{systemd: &systemdBus{}}
	}
	return cgroupDirs{}
}

// cgroupDirs makes groups as directories of the cgroup file system.
type cgroupDirs struct{}

func (cgroupDirs) check() error { return nil }

func (cgroupDirs) qosCgroup(_ context.Context, l layout, name string) error {
	for _, mount := range l.limited() {
		if err := l.makeWithParents(mount, name); err != nil {
			return err
		}
	}
	return nil
}

func (cgroupDirs) pod(_ context.Context, l layout, name string, s []setting) (bool, error) {
	made, err := l.makeAll(name)
	if err != nil || !made {
		return false, err
	}
	return true, write(l, name, slices.DeleteFunc(s, func(v setting) bool { return v.Initial }))
}

// makeAll makes the group in the hierarchies that limits are written in. made says that it was in none of them.
func (l layout) makeAll(name string) (made bool, err error) {
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

func (cgroupDirs) set(_ context.Context, l layout, name string, s []setting) error {
	return write(l, name, s)
}

func (cgroupDirs) stop(context.Context, string) error { return nil }

func (cgroupDirs) close() {}

// systemdManager is what keeps groups as slices. Its methods are those of systemdBus.
type systemdManager interface {
	Start(ctx context.Context, group string, s []setting) (made bool, err error)
	Set(ctx context.Context, group string, s []setting) error
	Stop(ctx context.Context, group string) error
	Close()
}

// systemdSlices has systemd make groups. Their files are written here as well: systemd
// doesn't know all of them, and doesn't report when the kernel refuses a value.
type systemdSlices struct {
	cgroupDirs
	systemd systemdManager
}

func (systemdSlices) check() error { return systemdRunning() }

func (u systemdSlices) qosCgroup(ctx context.Context, l layout, name string) error {
	if _, err := u.systemd.Start(ctx, name, nil); err != nil {
		return err
	}
	return u.cgroupDirs.qosCgroup(ctx, l, name)
}

func (u systemdSlices) pod(ctx context.Context, l layout, name string, s []setting) (bool, error) {
	// Systemd would make a missing QoS cgroup, too, but one without a weight.
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

// set calls systemd last: it has to know what is in force, not what the kernel refused.
func (u systemdSlices) set(ctx context.Context, l layout, name string, s []setting) error {
	if err := write(l, name, s); err != nil {
		return err
	}
	return u.systemd.Set(ctx, name, s)
}

func (u systemdSlices) stop(ctx context.Context, name string) error { return u.systemd.Stop(ctx, name) }

func (u systemdSlices) close() { u.systemd.Close() }

// makeWithParents makes the group and its parents. On cgroup v2 it also enables the
// used controllers for the children, so that their files appear there.
func (l layout) makeWithParents(mount, name string) error {
	dir := mount
	for element := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if l.v2 {
			if err := l.enableControllers(dir); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, element)
		if _, err := makeGroup(dir); err != nil {
			return err
		}
	}
	if l.v2 {
		return l.enableControllers(dir)
	}
	return nil
}

// dirs are the group's directories in all hierarchies, as far as they are there.
func (l layout) dirs(name string) ([]string, error) {
	var dirs []string
	for _, mount := range l.all {
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
