package resources

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/resources/knob"
	"github.com/deckhand-node/deckhand/internal/resources/slice"
)

// maker makes groups the way a driver does. A group's name is its path below where
// a hierarchy is mounted.
type maker interface {
	// check tells in one line what keeps the driver from working here, or nil.
	check() error
	// tier makes a group that pods' groups come into, and those it is in.
	tier(ctx context.Context, l layout, name string) error
	// pod makes a pod's group in a tier. It is fs.ErrNotExist if the tier isn't there.
	// made says that the group is new, and the settings are in force.
	pod(ctx context.Context, l layout, name string, s []knob.Setting) (made bool, err error)
	// set sets values in a group.
	set(ctx context.Context, l layout, name string, s []knob.Setting) error
	// stop ends what there is of a group besides its folders; there must be no process in it.
	stop(ctx context.Context, name string) error
	close()
}

func makerOf(d Driver) maker {
	if d == DriverSystemd {
		return units{systemd: &slice.Bus{}}
	}
	return folders{}
}

// folders makes groups as folders of the cgroup file system.
type folders struct{}

func (folders) check() error { return nil }

func (folders) tier(_ context.Context, l layout, name string) error {
	for _, mount := range l.limited() {
		if err := l.makeDown(mount, name); err != nil {
			return err
		}
	}
	return nil
}

func (folders) pod(_ context.Context, l layout, name string, _ []knob.Setting) (bool, error) {
	for _, mount := range l.limited() {
		if err := makeGroup(filepath.Join(mount, name)); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (folders) set(_ context.Context, l layout, name string, s []knob.Setting) error {
	return write(l, name, s)
}

func (folders) stop(context.Context, string) error { return nil }

func (folders) close() {}

// systemd is what keeps groups as slices. Its methods are those of slice.Bus.
type systemd interface {
	Start(ctx context.Context, group string, s []knob.Setting) (made bool, err error)
	Set(ctx context.Context, group string, s []knob.Setting) error
	Stop(ctx context.Context, group string) error
	Close()
}

// units has systemd make groups. Their files are written here as well: systemd
// doesn't know all of them, and doesn't tell when the kernel refuses a value.
type units struct {
	folders
	systemd systemd
}

func (units) check() error { return slice.Running() }

func (u units) tier(ctx context.Context, l layout, name string) error {
	if _, err := u.systemd.Start(ctx, name, nil); err != nil {
		return err
	}
	return u.folders.tier(ctx, l, name)
}

func (u units) pod(ctx context.Context, l layout, name string, s []knob.Setting) (bool, error) {
	// Systemd would make a missing tier, too, but one without a weight.
	for _, mount := range l.limited() {
		if _, err := os.Lstat(filepath.Join(mount, path.Dir(name))); err != nil {
			return false, err
		}
	}
	made, err := u.systemd.Start(ctx, name, s)
	if err != nil {
		return false, err
	}
	if _, err := u.folders.pod(ctx, l, name, s); err != nil || !made {
		return false, err
	}
	return true, write(l, name, s)
}

// set tells systemd last: it has to know what is in force, not what the kernel refused.
func (u units) set(ctx context.Context, l layout, name string, s []knob.Setting) error {
	if err := write(l, name, s); err != nil {
		return err
	}
	return u.systemd.Set(ctx, name, s)
}

func (u units) stop(ctx context.Context, name string) error { return u.systemd.Stop(ctx, name) }

func (u units) close() { u.systemd.Close() }

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

// folders are the group's in all hierarchies, as far as they are there.
func (l layout) folders(name string) ([]string, error) {
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
