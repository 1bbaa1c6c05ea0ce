package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/usage"
	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// disk is a mounted file system with project quotas.
type disk struct {
	kind, top string
	// asked says that a quota gave what was measured last.
	asked bool
}

func (d *disk) tell(value, fact string) { machine.Tell(value, "%s: %s", d.kind, fact) }

// directory makes a directory.
func (d *disk) directory(name string) (string, error) {
	dir := filepath.Join(d.top, name)
	return dir, os.MkdirAll(dir, 0o755)
}

func newMeter() *usage.Meter { return usage.New(usage.Config{Etc: etc}) }

// check reports all there is to see of one file system.
func (d *disk) check(ctx context.Context) error {
	m := usage.New(usage.Config{Etc: etc, Took: func(quota bool, _ time.Duration) { d.asked = quota }})
	for _, step := range []func(context.Context, *usage.Meter) error{d.assign, d.compare, d.open, d.again, d.release, d.projects, d.verdict} {
		if err := step(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// assign gives directories their projects.
func (d *disk) assign(_ context.Context, m *usage.Meter) error {
	for _, name := range []string{"first", "second"} {
		dir, err := d.directory(name)
		if err != nil {
			return err
		}
		if ok, err := m.Assign(dir); !ok || err != nil {
			return fmt.Errorf("assign %s: %v, %w", name, ok, err)
		}
		d.tell(project(dir), "project of the "+name+" directory")
	}
	dir, err := d.directory("used")
	if err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/file", []byte("x"), 0o600); err != nil {
		return err
	}
	ok, err := m.Assign(dir)
	reported := fmt.Sprintf("%v, %v", ok, err)
	if !ok && errors.Is(err, usage.ErrNotEmpty) {
		reported = usage.ErrNotEmpty.Error()
	}
	d.tell(reported, "a directory with files")
	d.tell(project(dir), "project of the directory with files")
	return nil
}

// project is the project ID of a file or directory.
func project(path string) string {
	out, err := exec.Command("lsattr", "-p", "-d", path).CombinedOutput()
	if err != nil || len(strings.Fields(string(out))) == 0 {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return strings.Fields(string(out))[0]
}

// compare fills a directory with some of everything, and measures it both ways.
func (d *disk) compare(ctx context.Context, m *usage.Meter) error {
	first, second := d.top+"/first", d.top+"/second"
	before, err := m.Measure(ctx, second)
	if err != nil {
		return err
	}
	if err := fill(first); err != nil {
		return err
	}
	unix.Sync() // so that blocks are where they will be
	d.tell(both(ctx, m, first), "a full directory, by quota and by walk")
	after, err := m.Measure(ctx, second)
	if err != nil {
		return err
	}
	d.tell(same(before, after), "another directory meanwhile")
	return nil
}

func fill(dir string) error {
	errs := []error{os.MkdirAll(dir+"/a/b/c", 0o755)}
	for i := range 300 {
		errs = append(errs, os.WriteFile(fmt.Sprintf("%s/a/b/%d", dir, i), make([]byte, 1+i*100), 0o600))
	}
	return errors.Join(append(errs,
		os.WriteFile(dir+"/large", make([]byte, 3<<20), 0o600),
		os.WriteFile(dir+"/hole", []byte("x"), 0o600),
		os.Truncate(dir+"/hole", 1<<30),
		os.Link(dir+"/large", dir+"/a/large"),
		os.Symlink("/", dir+"/link"),
		unix.Mkfifo(dir+"/fifo", 0o600),
	)...)
}

// both compares what the file system tells with what a walk finds.
func both(ctx context.Context, m *usage.Meter, dir string) string {
	quota, err := m.Measure(ctx, dir)
	if err != nil {
		return err.Error()
	}
	walk, err := newMeter().Measure(ctx, dir) // it knows of no project
	if err != nil {
		return err.Error()
	}
	return same(quota, walk)
}

func same(a, b usage.Usage) string {
	if a == b && a.Inodes > 0 {
		return "the same"
	}
	return fmt.Sprintf("%+v and %+v", a, b)
}

// open deletes a file that is open: only a quota tells of it. By that one knows that the quota is asked.
func (d *disk) open(ctx context.Context, m *usage.Meter) error {
	const size = 1 << 20
	dir := d.top + "/second"
	f, err := os.Create(dir + "/deleted")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), os.Remove(f.Name())); err != nil {
		return err
	}
	d.asked = false
	quota, err := m.Measure(ctx, dir)
	if err != nil {
		return err
	}
	walk, err := newMeter().Measure(ctx, dir)
	if err != nil {
		return err
	}
	reported := fmt.Sprintf("%+v and %+v", quota, walk)
	if quota.Bytes-walk.Bytes >= size && quota.Inodes-walk.Inodes == 1 && d.asked {
		reported = "by quota alone"
	}
	d.tell(reported, "a deleted file that is open")
	return nil
}

// again does what an agent does that comes after another.
func (d *disk) again(ctx context.Context, _ *usage.Meter) error {
	m, dir := newMeter(), d.top+"/first"
	ok, err := m.Assign(dir)
	if err != nil {
		return err
	}
	reported := "not assigned"
	if ok {
		reported = "assigned, and " + both(ctx, m, dir)
	}
	d.tell(reported, "a directory of an agent before")
	return nil
}

// release removes a directory, after which its project is free.
func (d *disk) release(ctx context.Context, m *usage.Meter) error {
	if err := os.RemoveAll(d.top + "/first"); err != nil {
		return err
	}
	m.Forget(d.top + "/first")
	unix.Sync()
	dir, err := d.directory("third")
	if err != nil {
		return err
	}
	if _, err := newMeter().Assign(dir); err != nil {
		return err
	}
	// XFS forgets files that are gone in its own time: whether the first one's is free again can't be found out.
	reported := "one of its own"
	if got := project(dir); got == "0" || got == project(d.top+"/second") {
		reported = got
	}
	d.tell(reported, "project of a directory after the first is gone")
	return ctx.Err()
}

// projects tries to count a file as somebody else's, with and without a user namespace.
func (d *disk) projects(context.Context, *usage.Meter) error {
	file := d.top + "/second/file"
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		return err
	}
	inside := exec.Command("chattr", "-p", "7", file)
	inside.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	out, err := inside.CombinedOutput()
	reported := "set"
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && project(file) == "1048578" {
		reported = "refused"
	} else if err != nil {
		reported = fmt.Sprintf("%v: %s", err, out)
	}
	d.tell(reported, "another project, set in a user namespace")
	reported = "set"
	if out, err := exec.Command("chattr", "-p", "7", file).CombinedOutput(); err != nil || project(file) != "7" {
		reported = fmt.Sprintf("%v: %s", err, out)
	}
	d.tell(reported, "another project, set by the host")
	return nil
}
