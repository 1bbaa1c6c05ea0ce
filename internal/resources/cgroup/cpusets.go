package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// cpusFile has the CPUs of a group. On cgroup v2, effectiveCPUsFile has those that the group really has.
const (
	cpusFile          = "cpuset.cpus"
	effectiveCPUsFile = "cpuset.cpus.effective"
)

// CPUs returns the CPUs on which the processes of a pod's container may run. The error is fs.ErrNotExist if the
// container has no group.
func (m *Manager) CPUs(ctx context.Context, uid types.UID, container string) (cpuset.CPUSet, error) {
	dir, v2, err := m.cpusetDir(ctx, uid, container)
	if err != nil {
		return cpuset.New(), err
	}
	name := cpusFile
	if v2 {
		name = effectiveCPUsFile
	}
	return readCPUs(filepath.Join(dir, name))
}

// PodsCPUs returns the CPUs that all pods together may use; none if they have no group yet, or no such limit.
func (m *Manager) PodsCPUs() (cpuset.CPUSet, error) {
	l, err := m.Layout(context.Background())
	if err != nil {
		return cpuset.New(), err
	}
	file := filepath.Join(l.Mounts["cpuset"], m.PodsGroup(), cpusFile)
	switch {
	case l.V2:
		file = filepath.Join(tree.MountPoint, m.PodsGroup(), effectiveCPUsFile)
	case l.Mounts["cpuset"] == "":
		return cpuset.New(), nil
	}
	set, err := readCPUs(file)
	if errors.Is(err, fs.ErrNotExist) {
		return cpuset.New(), nil
	}
	return set, err
}

// SetCPUs changes the CPUs of a container's group. On cgroup v1, groups that the container has made in it must not have
// more: the group first gets the new CPUs in addition, then those groups change, and the group loses the old ones.
func (m *Manager) SetCPUs(ctx context.Context, uid types.UID, container string, set cpuset.CPUSet) error {
	dir, v2, err := m.cpusetDir(ctx, uid, container)
	if err != nil {
		return err
	}
	if !v2 {
		groups, err := groupsBelow(dir)
		if err != nil {
			return err
		}
		var tooMuch []string
		for _, g := range groups[min(1, len(groups)):] {
			if has, err := readCPUs(filepath.Join(g, cpusFile)); err == nil && !has.IsSubsetOf(set) {
				tooMuch = append(tooMuch, g)
			}
		}
		if len(tooMuch) > 0 {
			for _, g := range append([]string{dir}, tooMuch...) { // parents first
				has, err := readCPUs(filepath.Join(g, cpusFile))
				if err == nil {
					err = writeFile(filepath.Join(g, cpusFile), has.Union(set).String())
				}
				if err != nil {
					return err
				}
			}
		}
		for _, g := range slices.Backward(tooMuch) {
			if err := writeFile(filepath.Join(g, cpusFile), set.String()); err != nil {
				return err
			}
		}
	}
	return writeFile(filepath.Join(dir, cpusFile), set.String())
}

// cpusetDir returns the directory of a container's group in the hierarchy with cpusets.
func (m *Manager) cpusetDir(ctx context.Context, uid types.UID, container string) (dir string, v2 bool, err error) {
	l, err := m.Layout(ctx)
	if err != nil {
		return "", false, err
	}
	mount := l.Mounts["cpuset"]
	if l.V2 {
		mount = tree.MountPoint
	}
	name, err := m.PodGroup(ctx, uid)
	if err != nil {
		return "", false, err
	}
	groups, err := l.Reader().ContainerGroups(name)
	if err != nil {
		return "", false, err
	}
	group, ok := groups[container]
	if mount == "" || !ok {
		return "", false, fmt.Errorf("look for the cpuset of container %s: %w", container, fs.ErrNotExist)
	}
	return filepath.Join(mount, group), l.V2, nil
}

func readCPUs(file string) (cpuset.CPUSet, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, unix.ENODEV) { // the group was removed after its file was opened
		err = fs.ErrNotExist
	}
	if err != nil {
		return cpuset.New(), err
	}
	return cpuset.Parse(strings.TrimSpace(string(text)))
}
