// Package counters reads the kernel's counters of control groups: CPU time, memory, threads, disk I/O and pressure, and
// which processes and groups a group contains. It changes nothing: package tree finds the groups, and cgroup creates
// them.
package counters

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Figures are the kernel's counters of a group, including its children. A part that couldn't be read is nil.
type Figures struct {
	// At is when the counters were read.
	At     time.Time
	CPU    *CPU
	Memory *Memory
	// PIDs is the number of threads and its limit; nil without the controller.
	PIDs *PIDs
	// IO is disk I/O by device; empty without the controller.
	IO []DeviceIO
	// CPUPressure, MemoryPressure and IOPressure are nil if the kernel has no PSI (cgroup v2 only).
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// CPU is the CPU time since the group was created, in nanoseconds.
type CPU struct {
	Usage uint64
	// The other fields are read only with Throttling.
	User, System              uint64
	Periods, ThrottledPeriods uint64
	Throttled                 uint64
	Shares                    uint64
	Quota, Period             int64 // microseconds; a negative quota is no limit
}

// Memory is a group's memory, in bytes unless noted otherwise.
type Memory struct {
	// Usage is the total. WorkingSet is Usage without inactive page cache, which is easy to reclaim.
	Usage, WorkingSet uint64
	// RSS is anonymous memory, Cache the page cache with shared memory, Mapped the part of Cache that processes have
	// mapped.
	RSS, Cache, Mapped       uint64
	ActiveFile, InactiveFile uint64
	// PageFaults and MajorPageFaults count since the group was created, including its children.
	PageFaults, MajorPageFaults uint64
	// OwnPageFaults and OwnMajorPageFaults count only the group's own processes. On cgroup v2, which doesn't count
	// these separately, both include the children.
	OwnPageFaults, OwnMajorPageFaults uint64
	// Limit is the group's own limit, or Unlimited.
	Limit uint64
	// Swap is the swap in use, SwapLimit its limit, or Unlimited.
	Swap, SwapLimit uint64
	// The other fields are read only with Throttling. Max is the peak usage, Failures how often the limit was hit,
	// Kernel the kernel's memory for the group, OOMKills the number of OOM kills, and Reservation the reserved
	// memory.
	Max, Failures, Kernel, OOMKills, Reservation uint64
}

// PIDs counts the threads of a group.
type PIDs struct{ Current, Limit uint64 }

// DeviceIO counts a group's I/O on one disk.
type DeviceIO struct {
	// Device is the path, such as /dev/vda; Number is the device number, such as 8:0.
	Device, Number                         string
	Reads, ReadBytes, Writes, WrittenBytes uint64
}

// Pressure is how long tasks stalled (Documentation/accounting/psi.rst).
type Pressure struct{ Some, Full Stalls }

// Stalls are the shares of stalled time in the last 10, 60 and 300 seconds, in percent, and the total in
// microseconds.
type Stalls struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Unlimited means no limit.
const Unlimited = math.MaxUint64

// LeastUnlimited is the smallest value that cgroup v1 shows for a missing limit.
const LeastUnlimited = 1 << 62

// Detail selects the counters to read.
type Detail int

const (
	// JustCPU is CPU time alone.
	JustCPU Detail = iota
	// Plain adds memory and pressure.
	Plain
	// Throttling adds limits, how often they were hit, threads and disk I/O.
	Throttling
)

// Reader reads cgroups' counters. It isn't safe for concurrent use.
type Reader struct {
	v2       bool
	mounts   map[string]string
	buf      []byte
	pressure bool
	// dir is the open directory of a group if isOpen is set. dirOf is the mount point of its hierarchy and the group's
	// name.
	dir    int
	isOpen bool
	dirOf  [2]string
	// devices are the paths of block devices by number.
	devices map[string]string
}

// New returns a Reader of the cgroups of a host with cgroup v2 or v1. mounts maps each controller to its mount point.
func New(v2 bool, mounts map[string]string) *Reader {
	r := &Reader{v2: v2, mounts: mounts, buf: make([]byte, 16<<10), devices: map[string]string{}}
	// PSI is available for all groups or none. The root's pressure is the machine's, in /proc.
	r.pressure = v2 && unix.Access("/proc/pressure/cpu", unix.R_OK) == nil
	return r
}

// ContainerGroups returns the names of the groups, in a pod's group, that the runtime has created for the pod's sandbox
// and containers, by the ID of the sandbox or container. Depending on the driver, such a group is a directory ID or
// PREFIX-ID, or a scope PREFIX-ID.scope. Groups of the runtime's own processes (conmon) are omitted.
func (r *Reader) ContainerGroups(pod string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.mounts["memory"], pod))
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

// Made returns when the group was created, or its counters were last reset; zero if that can't be read.
func (r *Reader) Made(group string) time.Time {
	info, err := os.Stat(filepath.Join(r.mounts["memory"], group))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Processes returns the processes of the group and of its children, which the container itself may have created. The
// group's own processes come first.
func (r *Reader) Processes(group string) ([]int, error) {
	list, err := r.ownProcesses(group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.mounts["memory"], group)
	// The link count of a cgroup directory is two plus the number of its children. Most groups have no child, but
	// dozens of files, so this saves reading the directory.
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

// Memory reads a group's memory usage, without limits. If the agent runs in a container, the group "/" is the
// container's group.
func (r *Reader) Memory(group string) (Memory, error) {
	defer r.leave()
	var m Memory
	err := r.memory(group, JustCPU, &m)
	return m, err
}

// MemoryAndLimit reads a group's memory usage, and Limit.
func (r *Reader) MemoryAndLimit(group string) (Memory, error) {
	defer r.leave()
	var m Memory
	err := r.memory(group, JustCPU, &m)
	if err != nil {
		return m, err
	}
	file := "memory.limit_in_bytes"
	if r.v2 {
		file = "memory.max"
	}
	m.Limit, err = r.limit("memory", group, file)
	if group == "/" && errors.Is(err, fs.ErrNotExist) { // on cgroup v2, outside of containers
		m.Limit, err = Unlimited, nil
	}
	return m, err
}

// PIDs reads a group's number of threads, and its limit. On cgroup v1 the root group has neither.
func (r *Reader) PIDs(group string) (PIDs, error) {
	defer r.leave()
	var p PIDs
	err := r.pids(group, &p)
	return p, err
}

// Read reads a group's counters. The error reports the counters that couldn't be read; the others are valid. It is
// fs.ErrNotExist if there is no such group.
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
	if detail == Throttling && r.mounts["pids"] != "" && group != "/" {
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
