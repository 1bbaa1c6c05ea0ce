package orphans

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Hierarchies returns the mount points of cgroup v2 and of every v1 controller.
func Hierarchies() []string {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil
	}
	var points []string
	for _, info := range infos {
		if !slices.Contains(points, info.Mountpoint) {
			points = append(points, info.Mountpoint)
		}
	}
	return points
}

// ContainerCgroup reports whether dir is a container's directory in one of the hierarchies. Its name has to be the
// container's ID, or with systemd the container's scope; other directories are rejected.
func ContainerCgroup(dir string, hierarchies []string, id string) bool {
	inside := slices.ContainsFunc(hierarchies, func(p string) bool { return strings.HasPrefix(dir, p+"/") })
	return inside && filepath.Clean(dir) == dir && CgroupOwner(dir) == id
}

// CgroupOwner returns the container ID in a cgroup directory's name.
func CgroupOwner(dir string) (id string) {
	name := filepath.Base(dir)
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		return strings.TrimPrefix(scope, "cri-containerd-")
	}
	return name
}

// KillCgroup kills every process in a cgroup and its descendants.
func KillCgroup(dir string) error {
	// cgroup v2 supports this atomically since Linux 5.14.
	if control(dir, "cgroup.kill", "1") == nil {
		return Kill(processesIn(dir))
	}
	// A frozen process can't die.
	if err := control(dir, "freezer.state", "THAWED"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Repeat until there are none: a process may fork while the list is read.
	deadline := time.Now().Add(dieIn)
	for {
		left := processesIn(dir)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %d processes can't be killed", dir, len(left))
		}
		if err := Kill(left); err != nil {
			return err
		}
	}
}

// control writes to a cgroup's file if the file exists.
func control(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// processesIn returns the processes in a cgroup and its descendants.
func processesIn(dir string) []Process {
	var all []Process
	for _, path := range Tree(dir) {
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			continue // the cgroup was removed meanwhile
		}
		for field := range strings.FieldsSeq(string(text)) {
			// 0 stands for a process of another PID namespace.
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				all = append(all, Process{PID: pid})
			}
		}
	}
	return all
}

// Tree lists dir and the directories below it, parents first.
func Tree(dir string) []string {
	var all []string
	// Directories that are removed meanwhile needn't be listed.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// RemoveCgroup removes a cgroup and its descendants, innermost first.
func RemoveCgroup(dir string) error {
	for _, path := range slices.Backward(Tree(dir)) {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the cgroup %s: %w", path, err)
		}
	}
	return nil
}
