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
	// Usage is all of it, WorkingSet what can't be given back easily: all but the files in the page cache that weren't used lately.
	Usage, WorkingSet uint64
	// RSS is anonymous memory, Cache that of files, with shared memory; Mapped is what processes have mapped of those.
	RSS, Cache, Mapped       uint64
	ActiveFile, InactiveFile uint64
	// PageFaults and MajorPageFaults count since the group was made.
	PageFaults, MajorPageFaults uint64
	// Limit is the group's own; Unlimited for none.
	Limit uint64
	// Swap is what is swapped out, SwapLimit how much may be; Unlimited for no limit.
	Swap, SwapLimit uint64
	// The rest is read with Throttling only: the most that was used, how often a limit was hit, what the kernel itself has, how often
	// a process was killed for want of memory, how much is reserved.
	Max, Failures, Kernel, OOMKills, Reservation uint64
}

// PIDs counts the threads of a group.
type PIDs struct{ Current, Limit uint64 }

// DeviceIO is what a group has done with one disk.
type DeviceIO struct {
	// Device is its file, as /dev/vda.
	Device                                 string
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

// ContainerGroups are the names of the groups in a pod's that runtimes make for its sandbox and containers: by the driver,
// a directory called ID or PREFIX-ID, or a scope PREFIX-ID.scope. What a runtime needs for itself beside a container (conmon) isn't the container's.
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

// Processes are those of the group, and of groups in it: a container may have made some of its own. The group's own come first.
func (r *Reader) Processes(group string) ([]int, error) {
	list, err := r.ownProcesses(group)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(r.layout.mounts["memory"], group))
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

// Read reads a group's figures. The error says what couldn't be read; the rest is there. Where there is no such group, it is
// fs.ErrNotExist.
func (r *Reader) Read(group string, detail Detail) (Figures, error) {
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
		f.CPUPressure, f.MemoryPressure, f.IOPressure = r.stalls(group, "cpu"), r.stalls(group, "memory"), r.stalls(group, "io")
	}
	return f, errors.Join(errs...)
}

func (r *Reader) cpu(group string, detail Detail, c *CPU) error {
	if r.layout.v2 {
		return r.cpuV2(group, detail, c)
	}
	var err error
	if c.Usage, err = r.value("cpuacct", group, "cpuacct.usage"); err != nil || detail < Throttling {
		return err
	}
	// In hundredths of a second, which USER_HZ is on every architecture that Linux runs pods on.
	const tick = uint64(time.Second / 100)
	err = r.keyed("cpuacct", group, "cpuacct.stat", func(key []byte, v uint64) {
		switch string(key) {
		case "user":
			c.User = v * tick
		case "system":
			c.System = v * tick
		}
	})
	if err != nil {
		return err
	}
	if c.Shares, err = r.value("cpu", group, "cpu.shares"); err != nil {
		return err
	}
	if c.Period, err = r.signed("cpu", group, "cpu.cfs_period_us"); err == nil {
		c.Quota, err = r.signed("cpu", group, "cpu.cfs_quota_us")
	}
	if errors.Is(err, fs.ErrNotExist) { // a kernel without bandwidth control
		c.Quota = -1
		return nil
	}
	if err != nil {
		return err
	}
	return r.keyed("cpu", group, "cpu.stat", func(key []byte, v uint64) {
		switch string(key) {
		case "nr_periods":
			c.Periods = v
		case "nr_throttled":
			c.ThrottledPeriods = v
		case "throttled_time":
			c.Throttled = v
		}
	})
}

func (r *Reader) cpuV2(group string, detail Detail, c *CPU) error {
	const micro = uint64(time.Microsecond)
	err := r.keyed("cpu", group, "cpu.stat", func(key []byte, v uint64) {
		switch string(key) {
		case "usage_usec":
			c.Usage = v * micro
		case "user_usec":
			c.User = v * micro
		case "system_usec":
			c.System = v * micro
		case "nr_periods":
			c.Periods = v
		case "nr_throttled":
			c.ThrottledPeriods = v
		case "throttled_usec":
			c.Throttled = v * micro
		}
	})
	c.Quota = -1
	if err != nil || detail < Throttling || group == "/" {
		return err
	}
	weight, err := r.value("cpu", group, "cpu.weight")
	if err != nil {
		return err
	}
	c.Shares = sharesOf(weight)
	text, err := r.file("cpu", group, "cpu.max")
	if err != nil {
		return err
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if quota != "max" {
		if c.Quota, err = strconv.ParseInt(quota, 10, 64); err != nil {
			return r.bad("cpu", group, "cpu.max", err)
		}
	}
	c.Period, err = strconv.ParseInt(period, 10, 64)
	return r.bad("cpu", group, "cpu.max", err)
}

func (r *Reader) memory(group string, detail Detail, m *Memory) error {
	if r.layout.v2 {
		return r.memoryV2(group, detail, m)
	}
	var err error
	if m.Usage, err = r.value("memory", group, "memory.usage_in_bytes"); err != nil {
		return err
	}
	err = r.keyed("memory", group, "memory.stat", func(key []byte, v uint64) {
		switch string(key) {
		case "total_rss":
			m.RSS = v
		case "total_cache":
			m.Cache = v
		case "total_mapped_file":
			m.Mapped = v
		case "total_active_file":
			m.ActiveFile = v
		case "total_inactive_file":
			m.InactiveFile = v
		case "total_swap":
			m.Swap = v
		case "total_pgfault":
			m.PageFaults = v
		case "total_pgmajfault":
			m.MajorPageFaults = v
		}
	})
	if err != nil {
		return err
	}
	m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
	if detail < Plain {
		return nil
	}
	if m.Limit, err = r.limit("memory", group, "memory.limit_in_bytes"); err != nil {
		return err
	}
	m.SwapLimit = Unlimited
	if both, err := r.limit("memory", group, "memory.memsw.limit_in_bytes"); err == nil && both != Unlimited && m.Limit != Unlimited {
		m.SwapLimit = both - min(m.Limit, both)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if detail < Throttling {
		return nil
	}
	for file, to := range map[string]*uint64{"memory.max_usage_in_bytes": &m.Max, "memory.failcnt": &m.Failures, "memory.kmem.usage_in_bytes": &m.Kernel, "memory.soft_limit_in_bytes": &m.Reservation} {
		if *to, err = r.limit("memory", group, file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.keyed("memory", group, "memory.oom_control", func(key []byte, v uint64) {
		if string(key) == "oom_kill" {
			m.OOMKills = v
		}
	})
}

func (r *Reader) memoryV2(group string, detail Detail, m *Memory) error {
	err := r.keyed("memory", group, "memory.stat", func(key []byte, v uint64) {
		switch string(key) {
		case "anon":
			m.RSS = v
		case "file":
			m.Cache = v
		case "file_mapped":
			m.Mapped = v
		case "active_file":
			m.ActiveFile = v
		case "inactive_file":
			m.InactiveFile = v
		case "kernel":
			m.Kernel = v
		case "pgfault":
			m.PageFaults = v
		case "pgmajfault":
			m.MajorPageFaults = v
		}
	})
	if err != nil {
		return err
	}
	m.Limit, m.SwapLimit = Unlimited, Unlimited
	if group == "/" { // the root has no figures of its own: the machine's are in /proc
		var total, free, swap, swapFree uint64
		if err := r.pairs("/proc/meminfo", ":", func(key []byte, kib uint64) {
			switch string(key) {
			case "MemTotal":
				total = kib << 10
			case "MemFree":
				free = kib << 10
			case "SwapTotal":
				swap = kib << 10
			case "SwapFree":
				swapFree = kib << 10
			}
		}); err != nil {
			return err
		}
		m.Usage, m.Swap, m.SwapLimit = total-free, swap-swapFree, swap
		m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
		return nil
	}
	if m.Usage, err = r.value("memory", group, "memory.current"); err != nil {
		return err
	}
	m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
	if detail < Plain {
		return nil
	}
	if m.Limit, err = r.limit("memory", group, "memory.max"); err != nil {
		return err
	}
	if m.Swap, err = r.value("memory", group, "memory.swap.current"); err == nil {
		m.SwapLimit, err = r.limit("memory", group, "memory.swap.max")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without swap accounting there are none
		return err
	}
	if detail < Throttling {
		return nil
	}
	for file, to := range map[string]*uint64{"memory.peak": &m.Max, "memory.low": &m.Reservation} {
		if *to, err = r.limit("memory", group, file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.keyed("memory", group, "memory.events", func(key []byte, v uint64) {
		switch string(key) {
		case "max":
			m.Failures = v
		case "oom_kill":
			m.OOMKills = v
		}
	})
}

func (r *Reader) pids(group string, p *PIDs) error {
	var err error
	if p.Current, err = r.value("pids", group, "pids.current"); err == nil {
		p.Limit, err = r.limit("pids", group, "pids.max")
	}
	return err
}

// io reads what was read from and written to disks. A group that has used none has none.
func (r *Reader) io(group string) ([]DeviceIO, error) {
	var list []DeviceIO
	of := func(number string) *DeviceIO {
		name := r.device(number)
		for i := range list {
			if list[i].Device == name {
				return &list[i]
			}
		}
		list = append(list, DeviceIO{Device: name})
		return &list[len(list)-1]
	}
	each := func(file string, line func(fields []string)) error {
		controller := "blkio"
		if r.layout.v2 {
			controller = "io"
		}
		if r.layout.mounts[controller] == "" {
			return nil
		}
		text, err := r.file(controller, group, file)
		if errors.Is(err, fs.ErrNotExist) { // a kernel without throttling, or a group that isn't in this hierarchy
			return nil
		}
		for l := range strings.Lines(string(text)) {
			if fields := strings.Fields(l); len(fields) > 2 {
				line(fields)
			}
		}
		return err
	}
	if r.layout.v2 {
		err := each("io.stat", func(fields []string) {
			d := of(fields[0])
			for _, f := range fields[1:] {
				key, text, _ := strings.Cut(f, "=")
				if to := map[string]*uint64{"rbytes": &d.ReadBytes, "wbytes": &d.WrittenBytes, "rios": &d.Reads, "wios": &d.Writes}[key]; to != nil {
					*to, _ = number([]byte(text))
				}
			}
		})
		return list, err
	}
	split := func(read, write func(*DeviceIO) *uint64) func([]string) {
		return func(fields []string) {
			v, _ := number([]byte(fields[2]))
			switch d := of(fields[0]); fields[1] {
			case "Read":
				*read(d) = v
			case "Write":
				*write(d) = v
			}
		}
	}
	err := each("blkio.throttle.io_service_bytes", split(func(d *DeviceIO) *uint64 { return &d.ReadBytes }, func(d *DeviceIO) *uint64 { return &d.WrittenBytes }))
	return list, errors.Join(err, each("blkio.throttle.io_serviced", split(func(d *DeviceIO) *uint64 { return &d.Reads }, func(d *DeviceIO) *uint64 { return &d.Writes })))
}

// device is the file of a block device with this number, as 8:0; the number if there is none.
func (r *Reader) device(number string) string {
	if name := r.devices[number]; name != "" {
		return name
	}
	name := number
	text, _ := os.ReadFile("/sys/dev/block/" + number + "/uevent")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			name = "/dev/" + strings.TrimSpace(value)
		}
	}
	r.devices[number] = name
	return name
}

// stalls reads the pressure of a group; nil if it isn't there, as it may be switched off for a group.
func (r *Reader) stalls(group, kind string) *Pressure {
	file := filepath.Join(r.layout.mounts["memory"], group, kind+".pressure")
	if group == "/" {
		file = filepath.Join("/proc/pressure", kind)
	}
	text, err := r.slurp(file)
	if err != nil {
		return nil
	}
	return parsePressure(string(text))
}

func parsePressure(text string) *Pressure {
	var p Pressure
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		to := map[string]*Stalls{"some": &p.Some, "full": &p.Full}[fields[0]]
		if to == nil {
			continue
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			if key == "total" {
				to.Total, _ = strconv.ParseUint(value, 10, 64)
				found = true
				continue
			}
			share, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "avg10":
				to.Avg10 = share
			case "avg60":
				to.Avg60 = share
			case "avg300":
				to.Avg300 = share
			}
		}
	}
	if !found {
		return nil
	}
	return &p
}

// sharesOf is the number of cgroup v1's CPU shares for a weight of v2 (KEP-2254).
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// value reads a file that holds one number.
func (r *Reader) value(controller, group, name string) (uint64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	n, ok := number(bytes.TrimSpace(text))
	if !ok {
		return 0, r.bad(controller, group, name, errors.New("it holds no number: "+strconv.Quote(string(text[:min(len(text), 40)]))))
	}
	return n, nil
}

func (r *Reader) signed(controller, group, name string) (int64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, r.bad(controller, group, name, err)
}

// limit reads a file with a limit.
func (r *Reader) limit(controller, group, name string) (uint64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return Unlimited, nil
	}
	n, ok := number(text)
	if !ok {
		return 0, r.bad(controller, group, name, errors.New("it holds no limit: "+strconv.Quote(string(text[:min(len(text), 40)]))))
	}
	if n >= unlimited {
		return Unlimited, nil
	}
	return n, nil
}

// keyed reads a file of lines KEY NUMBER.
func (r *Reader) keyed(controller, group, name string, each func(key []byte, value uint64)) error {
	return r.pairs(r.path(controller, group, name), " ", each)
}

func (r *Reader) pairs(file, separator string, each func(key []byte, value uint64)) error {
	text, err := r.slurp(file)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		key, value, ok := bytes.Cut(line, []byte(separator))
		if !ok {
			continue
		}
		value, _, _ = bytes.Cut(bytes.TrimSpace(value), []byte(" ")) // as in "16 kB"
		if n, ok := number(value); ok {
			each(key, n)
		}
	}
	return nil
}

func number(text []byte) (n uint64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' || n > (math.MaxUint64-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, len(text) > 0
}

func (r *Reader) path(controller, group, name string) string {
	if !strings.HasPrefix(group, "/") {
		group = "/" + group
	}
	return r.layout.mounts[controller] + group + "/" + name
}

func (r *Reader) bad(controller, group, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "read", Path: r.path(controller, group, name), Err: err}
}

func (r *Reader) file(controller, group, name string) ([]byte, error) {
	if r.layout.mounts[controller] == "" {
		return nil, &fs.PathError{Op: "read", Path: group + "/" + name, Err: errors.New("the kernel offers no cgroup controller " + controller)}
	}
	return r.slurp(r.path(controller, group, name))
}

// slurp reads a whole file of the kernel into the reader's buffer, which the next call overwrites.
func (r *Reader) slurp(file string) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: file, Err: err}
	}
	defer unix.Close(fd)
	size := 0
	for {
		if size == len(r.buf) {
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
		n, err := unix.Read(fd, r.buf[size:])
		if err == unix.EINTR {
			continue
		}
		if errors.Is(err, unix.ENODEV) { // the group was removed after its file was opened
			err = unix.ENOENT
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: file, Err: err}
		}
		if n == 0 {
			return r.buf[:size], nil
		}
		size += n
	}
}

// Own is the name of the group that this process is in; empty where it has none of its own: it is in the root's, or in different ones.
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
