package cgroup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Figures are what the kernel counted of one group and those in it. A part that couldn't be read is nil.
type Figures struct {
	// At is when they were read.
	At     time.Time
	CPU    *CPU
	Memory *Memory
	// PIDs is how many threads there are, and may be at most; nil without the controller.
	PIDs *PIDs
	// IO is what was read from and written to disks, by device; none without the controller.
	IO []DeviceIO
	// CPUPressure, MemoryPressure and IOPressure are nil where the kernel has none (PSI; cgroup v2 only).
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// CPU is the time that a group has used since it was made. In nanoseconds.
type CPU struct {
	Usage uint64
	// The rest is read with Throttling only.
	User, System              uint64
	Periods, ThrottledPeriods uint64
	Throttled                 uint64
	Shares                    uint64
	Quota, Period             int64 // microseconds; a quota below 0 is none
}

// Memory is what is charged to a group, in bytes, as far as nothing else is said.
type Memory struct {
	// Usage is all of it, WorkingSet what can't be given back easily: all but the files in the page cache that weren't
	// used lately.
	Usage, WorkingSet uint64
	// RSS is anonymous memory, Cache that of files, with shared memory; Mapped is what processes have mapped of those.
	RSS, Cache, Mapped       uint64
	ActiveFile, InactiveFile uint64
	// PageFaults and MajorPageFaults count since the group was made, with those in groups below it.
	PageFaults, MajorPageFaults uint64
	// OwnPageFaults and OwnMajorPageFaults are those of the group's own processes. On cgroup v2, which doesn't count
	// them, they are the same as all.
	OwnPageFaults, OwnMajorPageFaults uint64
	// Limit is the group's own; Unlimited for none.
	Limit uint64
	// Swap is what is swapped out, SwapLimit how much may be; Unlimited for no limit.
	Swap, SwapLimit uint64
	// The rest is read with Throttling only: the most that was used, how often a limit was hit, what the kernel itself
	// has, how often a process was killed for want of memory, how much is reserved.
	Max, Failures, Kernel, OOMKills, Reservation uint64
}

// PIDs counts the threads of a group.
type PIDs struct{ Current, Limit uint64 }

// DeviceIO is what a group has done with one disk.
type DeviceIO struct {
	// Device is its file, as /dev/vda, and Number what the kernel calls it, as 8:0.
	Device, Number                         string
	Reads, ReadBytes, Writes, WrittenBytes uint64
}

// Pressure is how long tasks stalled (Documentation/accounting/psi.rst).
type Pressure struct{ Some, Full Stalls }

// Stalls are shares of time in percent, and all of it in microseconds.
type Stalls struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Unlimited stands for no limit.
const Unlimited = math.MaxUint64

// Detail is how much of a group is read.
type Detail int

const (
	// JustCPU is CPU time alone.
	JustCPU Detail = iota
	// Plain is also memory and pressure.
	Plain
	// Throttling is also what limits there are, and how often they were hit.
	Throttling
)

// Reader reads figures. One reader is for one goroutine.
type Reader struct {
	layout   layout
	buf      []byte
	pressure bool
	// dir is the directory of a group, if isOpen, and dirOf says of which: its hierarchy's, and its name.
	dir    int
	isOpen bool
	dirOf  [2]string
	// devices are the files of block devices, by their numbers.
	devices map[string]string
}

// Reader returns one for this host's groups.
func (m *Manager) Reader(ctx context.Context) (*Reader, error) {
	l, err := m.usable(ctx)
	if err != nil {
		return nil, err
	}
	return newReader(l), nil
}

func newReader(l layout) *Reader {
	r := &Reader{layout: l, buf: make([]byte, 16<<10), devices: map[string]string{}}
	// A kernel has it for all groups or for none. The root's are those of the machine, in /proc.
	r.pressure = l.v2 && unix.Access("/proc/pressure/cpu", unix.R_OK) == nil
	return r
}

// PodsGroup is the name of the group that all pods are in.
func (m *Manager) PodsGroup() string { return m.qosCgroup(classes[0]) }

// PodGroup is the name of the pod's group. The error is fs.ErrNotExist where it has none.
func (m *Manager) PodGroup(ctx context.Context, uid types.UID) (string, error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return "", err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return "", err
	}
	for _, class := range classes {
		name := m.name(class, uid)
		if unix.Access(filepath.Join(l.mounts["memory"], name), unix.F_OK) == nil {
			return name, nil
		}
	}
	return "", &fs.PathError{Op: "look for the cgroup of pod", Path: string(uid), Err: fs.ErrNotExist}
}

// ContainerGroups are the names of the groups in a pod's that runtimes make for its sandbox and containers: by the
// driver, a directory called ID or PREFIX-ID, or a scope PREFIX-ID.scope. What a runtime needs for itself beside a
// container (conmon) isn't the container's.
func (r *Reader) ContainerGroups(pod string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.layout.mounts["memory"], pod))
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, e := range entries {
		if !e.IsDir() || strings.Contains(e.Name(), "-conmon-") {
			continue
		}
		id := strings.TrimSuffix(e.Name(), ".scope")
		id = id[strings.LastIndexByte(id, '-')+1:]
		names[id] = path.Join(pod, e.Name())
	}
	return names, nil
}

// Made is when the group was made, or its figures were last reset; zero if that isn't known.
func (r *Reader) Made(group string) time.Time {
	info, err := os.Stat(filepath.Join(r.layout.mounts["memory"], group))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Processes are those of the group, and of groups in it: a container may have made some of its own. The group's own
// come first.
func (r *Reader) Processes(group string) ([]int, error) {
	list, err := r.ownProcesses(group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.layout.mounts["memory"], group)
	// A directory of the kernel's has two links and one of each directory in it; most have none, but dozens of files.
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return list, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if stat.Nlink == 2 {
		return list, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return list, err
	}
	for _, e := range entries {
		if e.IsDir() {
			below, err := r.Processes(path.Join(group, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return list, err
			}
			list = append(list, below...)
		}
	}
	return list, nil
}

func (r *Reader) ownProcesses(group string) ([]int, error) {
	defer r.leave()
	text, err := r.file("memory", group, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var list []int
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil {
			list = append(list, pid)
		}
	}
	return list, nil
}

// Read reads a group's figures. The error says what couldn't be read; the rest is there. Where there is no such group,
// it is fs.ErrNotExist.
func (r *Reader) Read(group string, detail Detail) (Figures, error) {
	defer r.leave()
	f := Figures{At: time.Now()}
	var errs []error
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	if cpu := new(CPU); note(r.cpu(group, detail, cpu)) {
		f.CPU = cpu
	}
	if detail == JustCPU {
		return f, errors.Join(errs...)
	}
	if memory := new(Memory); note(r.memory(group, detail, memory)) {
		f.Memory = memory
	}
	if detail == Throttling && r.layout.mounts["pids"] != "" && group != "/" {
		if pids := new(PIDs); note(r.pids(group, pids)) {
			f.PIDs = pids
		}
	}
	if detail == Throttling {
		var err error
		f.IO, err = r.io(group)
		note(err)
	}
	if r.pressure {
		f.CPUPressure, f.MemoryPressure, f.IOPressure = r.stalls(group, "cpu"), r.stalls(group, "memory"),
			r.stalls(group, "io")
	}
	return f, errors.Join(errs...)
}

// Own is the name of the group that this process is in; empty where it has none of its own: it is in the root's, or in
// different ones.
func Own() string {
	groups, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own, v1 := groups["memory"]
	if !v1 {
		own = groups[""]
	}
	if cpu, ok := groups["cpu"]; own == "/" || ok && cpu != own {
		return ""
	}
	return own
}
