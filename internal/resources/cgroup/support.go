package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// Support lists optional features of this host's cgroups.
type Support struct {
	// V2 means cgroup v2, where a container's configuration may contain values for cgroup files (CRI's "unified"). On
	// cgroup v1 the OCI runtimes refuse them.
	V2 bool
	// Swap: swap can be limited.
	Swap bool
	// PIDs: the number of a pod's processes can be limited.
	PIDs bool
	// HugePages are the sizes of huge pages whose use can be limited, as in cgroup files and the CRI: "2MB".
	HugePages []string
}

// Support detects this host's features. It may create the QoS cgroups, as EnsureQoSCgroups does.
func (m *Manager) Support() (Support, error) {
	l, err := m.hierarchies()
	if err != nil {
		return Support{}, err
	}
	s := Support{V2: l.V2, Swap: m.swapIsBound(l)}
	_, s.PIDs = l.Mounts["pids"]
	if _, ok := l.Mounts["hugetlb"]; ok {
		s.HugePages = m.kernel().pages
	}
	return s, nil
}

// swapIsBound reports whether the file that limits swap exists. On cgroup v2, the root group never has this file, but
// the root's children have it if the kernel supports swap limits.
func (m *Manager) swapIsBound(l hierarchies) bool {
	if !l.V2 {
		return exists(filepath.Join(l.Mounts["memory"], "memory.memsw.limit_in_bytes"))
	}
	const file = "memory.swap.max"
	if found, err := filepath.Glob(filepath.Join(tree.MountPoint, "*", file)); err == nil && len(found) > 0 {
		return true
	}
	// Calls to systemd have a timeout, and the kernel doesn't block.
	if err := m.ensureQoSCgroups(context.Background(), l); err != nil {
		return false // the first pod's cgroup will report it
	}
	return exists(filepath.Join(tree.MountPoint, m.QoSCgroup(v1.PodQOSGuaranteed), file))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Warnings returns one line for each setting that has no effect on this host. throttle means that the feature gate
// MemoryQoS is on, which throttles containers by memory.high.
func (m *Manager) Warnings(s Support, node capacity.Node, throttle bool) []string {
	var w []string
	add := func(is bool, format string, args ...any) {
		if is {
			w = append(w, fmt.Sprintf(format, args...))
		}
	}
	limit, most := m.conf.PIDsLimit, m.kernel().maxPIDs
	add(limit > 0 && !s.PIDs,
		"podPidsLimit %d has no effect: this kernel offers no cgroup controller %q under %s",
		limit, "pids", tree.MountPoint)
	add(limit > most && s.PIDs && most > 0,
		"podPidsLimit %d is more than this node's %d processes in all: pods may have that many", limit, most)
	limited := m.conf.Swap > 0
	add(limited && !s.V2, "memorySwap.swapBehavior LimitedSwap needs cgroup v2, and this host has v1: containers are "+
		"kept off swap, as far as they have a memory limit")
	add(limited && s.V2 && !s.Swap,
		"memorySwap.swapBehavior LimitedSwap has no effect: this kernel can't bound swap (no memory.swap.max)")
	add(node.Swap > 0 && !s.Swap,
		"containers can't be kept off this node's swap: the kernel doesn't account for it; boot with swapaccount=1, "+
			"or turn swap off (swapoff -a)")
	add(node.Swap > 0 && s.Swap && !s.V2 && !limited,
		"containers without a memory limit can't be kept off this node's swap: that needs cgroup v2; turn swap off "+
			"(swapoff -a)")
	add(m.conf.ReserveMemory && !s.V2,
		"memoryReservationPolicy TieredReservation has no effect: it needs cgroup v2, and this host has v1")
	add(throttle && !s.V2, "memoryThrottlingFactor has no effect: it needs cgroup v2, and this host has v1")
	release := kernelRelease()
	add(throttle && s.V2 && olderThan(release, 5, 9),
		"memoryThrottlingFactor may stall containers for good: this kernel is %s, and before 5.9 memory.high had "+
			"that fault; set it to 1.0, or update the kernel", release)
	for name, bytes := range node.HugePages {
		if bytes > 0 && len(s.HugePages) == 0 {
			add(true, "limits of %s aren't enforced: this kernel offers no cgroup controller %q under %s", name,
				"hugetlb", tree.MountPoint)
		}
	}
	return w
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// olderThan compares a kernel's release, such as "6.1.0-13-amd64". A release that can't be parsed isn't older.
func olderThan(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		rest = rest[:digits]
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(rest)
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}
