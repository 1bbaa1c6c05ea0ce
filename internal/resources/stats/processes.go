package stats

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// readProcesses counts the pod's processes and reads its network counters. If files isn't zero, it also counts open
// files, at most until that time. It uses the network namespace of the sandbox's process, which containers can't
// change, or of a container's process if the sandbox has none.
func (p *Pod) readProcesses(r *counters.Reader, sandbox string, files time.Time, faults *faults) {
	var count uint64
	var first int
	var of string // the group of the first process
	in := func(group string) (running Running) {
		if group == "" {
			return running
		}
		list, err := r.Processes(group)
		faults.add(err)
		count += uint64(len(list))
		if first == 0 && len(list) > 0 {
			first, of = list[0], group
		}
		running.Processes = len(list)
		if !files.IsZero() {
			running.Files = openFiles(list, files)
		}
		return running
	}
	p.InSandbox = in(sandbox)
	for i := range p.Containers {
		p.Containers[i].Running = in(p.Containers[i].Path)
	}
	p.Processes = &count
	if len(p.observed.Sandboxes) > 0 && p.observed.Sandboxes[0].HostNetwork || first == 0 {
		return
	}
	interfaces, stats := network(r.ReadFile, "/proc/"+strconv.Itoa(first)+"/net/dev", nil)
	if again, err := r.Processes(of); err == nil && slices.Contains(again, first) { // otherwise the PID may be reused
		p.Interfaces, p.Network = interfaces, stats
	}
}

// Files counts the open files of a container's processes.
type Files struct {
	Open, Sockets uint64
	// Limit is the soft limit of open files (RLIMIT_NOFILE) of the first process that still exists; -1 if there is no
	// limit.
	Limit float64
}

const (
	// filesFor limits the time for counting open files of one container, allFilesFor the time for all containers:
	// each file takes a system call.
	filesFor, allFilesFor = 100 * time.Millisecond, time.Second
	// filesAtOnce is how many files are counted between checks of the time.
	filesAtOnce = 256
)

// openFiles counts the open files of processes; nil if it takes until due or longer, or all processes have ended.
// Processes that end meanwhile are skipped.
func openFiles(pids []int, due time.Time) *Files {
	if soon := time.Now().Add(filesFor); soon.Before(due) {
		due = soon
	}
	var f Files
	limited := false
	target := make([]byte, len("socket:"))
	for _, pid := range pids {
		proc := "/proc/" + strconv.Itoa(pid)
		if !limited {
			f.Limit, limited = openLimit(proc)
		}
		dir, err := os.Open(proc + "/fd")
		if err != nil {
			continue
		}
		late := false
		for !late {
			names, err := dir.Readdirnames(filesAtOnce)
			for _, name := range names {
				if n, err := unix.Readlinkat(int(dir.Fd()), name, target); err == nil &&
					string(target[:n]) == "socket:" {
					f.Sockets++
				}
			}
			f.Open += uint64(len(names))
			if err != nil { // the end of the directory, or the process has ended
				break
			}
			late = !time.Now().Before(due)
		}
		_ = dir.Close()
		if late || !time.Now().Before(due) {
			return nil
		}
	}
	if !limited {
		return nil
	}
	return &f
}

// openLimit returns a process's soft limit of open files; false if the process has ended. prlimit(2) would require
// CAP_SYS_RESOURCE for processes of other users.
func openLimit(proc string) (limit float64, ok bool) {
	limits, err := os.ReadFile(proc + "/limits")
	_, rest, _ := bytes.Cut(limits, []byte("Max open files"))
	soft := bytes.Fields(rest)
	if err != nil || len(soft) == 0 {
		return 0, false
	}
	if limit, err = strconv.ParseFloat(string(soft[0]), 64); err != nil {
		limit = -1 // unlimited
	}
	return limit, true
}

// Disk contains the counters of one of the machine's disks since it was attached
// (Documentation/admin-guide/iostats.rst); times are in milliseconds.
type Disk struct {
	// Device is the path, such as /dev/vda.
	Device                                        string
	Reads, ReadsMerged, SectorsRead, Reading      uint64
	Writes, WritesMerged, SectorsWritten, Writing uint64
	InProgress, Busy, Weighted                    uint64
}

// sector is the size in bytes of the sectors that the kernel counts, whatever the disk's sector size.
const sector = 512

// disks returns the disks that were ever used; none if they can't be read.
func disks() []Disk {
	text, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return nil
	}
	var list []Disk
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 14 {
			continue
		}
		d := Disk{Device: "/dev/" + fields[2]}
		for i, to := range []*uint64{&d.Reads, &d.ReadsMerged, &d.SectorsRead, &d.Reading, &d.Writes, &d.WritesMerged,
			&d.SectorsWritten, &d.Writing,
			&d.InProgress, &d.Busy, &d.Weighted} {
			*to, _ = strconv.ParseUint(fields[3+i], 10, 64) // the kernel's own format
		}
		if d.Reads+d.Writes > 0 {
			list = append(list, d)
		}
	}
	return list
}

// foreign are name prefixes of the interfaces that don't count as the machine's: those that lead to containers, and
// loopback.
var foreign = []string{"lo", "veth", "docker", "nerdctl"}

// hostNetwork returns the counters of the machine's own interfaces, from the network namespace of PID 1.
func hostNetwork() ([]Interface, *statsapi.NetworkStats) {
	return network(os.ReadFile, "/proc/1/net/dev", foreign)
}

// Interface contains the counters of a network interface since it was created.
type Interface struct {
	Name           string
	Received, Sent Traffic
}

// Traffic counts the data that an interface has received or sent.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// network parses a file like /proc/net/dev (proc_pid_net(5)); nil if it can't be read, for example because the
// process has ended. It skips loopback, and interfaces whose names have a prefix in without.
func network(read func(string) ([]byte, error), file string, without []string) ([]Interface, *statsapi.NetworkStats) {
	text, err := read(file)
	if err != nil {
		return nil, nil
	}
	var list []Interface
	for line := range bytes.Lines(text) {
		before, counts, ok := bytes.Cut(line, []byte(":"))
		before = bytes.TrimSpace(before)
		if !ok || string(before) == "lo" {
			continue
		}
		var fields [16]uint64
		found := 0
		for f := range bytes.FieldsSeq(counts) {
			if found < len(fields) {
				fields[found], _ = strconv.ParseUint(string(f), 10, 64) // the kernel's own format
			}
			found++
		}
		name := string(before)
		if found < len(fields) ||
			slices.ContainsFunc(without, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		direction := func(f []uint64) Traffic { return Traffic{f[0], f[1], f[2], f[3]} }
		list = append(list, Interface{name, direction(fields[:8]), direction(fields[8:])})
	}
	n := &statsapi.NetworkStats{Time: metav1.NewTime(time.Now()),
		Interfaces: make([]statsapi.InterfaceStats, 0, len(list))}
	for k := range list {
		i := &list[k]
		stats := statsapi.InterfaceStats{Name: i.Name, RxBytes: &i.Received.Bytes, RxErrors: &i.Received.Errors,
			TxBytes: &i.Sent.Bytes, TxErrors: &i.Sent.Errors}
		if i.Name == "eth0" { // the default interface in the API
			n.InterfaceStats = stats
		}
		n.Interfaces = append(n.Interfaces, stats)
	}
	return list, n
}

// hostProcesses returns the machine's number of processes and its limit; nil if it can't be read.
func hostProcesses() *statsapi.RlimitStats {
	tasks, err := capacity.ReadTasks("/")
	if err != nil {
		return nil
	}
	limits := &statsapi.RlimitStats{Time: metav1.NewTime(time.Now()), NumOfRunningProcesses: &tasks.Count}
	if tasks.Max > 0 {
		limits.MaxPID = &tasks.Max
	}
	return limits
}

// bootTime returns when the machine was booted; zero if that can't be read.
func bootTime() time.Time {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			seconds, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.Unix(seconds, 0)
		}
	}
	return time.Time{}
}
