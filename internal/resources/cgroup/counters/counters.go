package counters

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

func (r *Reader) cpu(group string, detail Detail, c *CPU) error {
	if r.v2 {
		return r.cpuV2(group, detail, c)
	}
	var err error
	if c.Usage, err = r.value("cpuacct", group, "cpuacct.usage"); err != nil || detail < Throttling {
		return err
	}
	// The unit is 1/100 s: USER_HZ is 100 on every architecture that Linux runs pods on.
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
	if errors.Is(err, fs.ErrNotExist) { // the kernel has no bandwidth control
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
	if r.v2 {
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
		case "pgfault":
			m.OwnPageFaults = v
		case "pgmajfault":
			m.OwnMajorPageFaults = v
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
	if both, err := r.limit("memory", group, "memory.memsw.limit_in_bytes"); err == nil && both != Unlimited &&
		m.Limit != Unlimited {
		m.SwapLimit = both - min(m.Limit, both)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if detail < Throttling {
		return nil
	}
	for file, to := range map[string]*uint64{"memory.max_usage_in_bytes": &m.Max, "memory.failcnt": &m.Failures,
		"memory.kmem.usage_in_bytes": &m.Kernel, "memory.soft_limit_in_bytes": &m.Reservation} {
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
			m.PageFaults, m.OwnPageFaults = v, v
		case "pgmajfault":
			m.MajorPageFaults, m.OwnMajorPageFaults = v, v
		}
	})
	if err != nil {
		return err
	}
	m.Limit, m.SwapLimit = Unlimited, Unlimited
	m.Usage, err = r.value("memory", group, "memory.current")
	if group == "/" && errors.Is(err, fs.ErrNotExist) { // in a container, "/" is a group like any other
		return r.machineMemory(m)
	}
	if err != nil {
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without swap accounting, the files don't exist
		return err
	}
	if detail < Throttling {
		return nil
	}
	for file, to := range map[string]*uint64{"memory.peak": &m.Max, "memory.min": &m.Reservation} {
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

// machineMemory reads the usage of the whole machine from /proc: cgroup v2 doesn't count it. The root's memory.stat has
// been read into m.
func (r *Reader) machineMemory(m *Memory) error {
	text, err := r.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	machine, err := capacity.ParseMeminfo(text)
	if err != nil {
		return err
	}
	m.Usage = uint64(machine.Memory - machine.MemoryFree)
	m.Swap, m.SwapLimit = uint64(machine.Swap-machine.SwapFree), uint64(machine.Swap)
	m.WorkingSet = m.Usage - min(m.InactiveFile, m.Usage)
	return nil
}

func (r *Reader) pids(group string, p *PIDs) error {
	var err error
	if p.Current, err = r.value("pids", group, "pids.current"); err == nil {
		p.Limit, err = r.limit("pids", group, "pids.max")
	}
	return err
}

// io reads the I/O counters of each block device. Devices that the group hasn't used are missing.
func (r *Reader) io(group string) ([]DeviceIO, error) {
	var list []DeviceIO
	of := func(number string) *DeviceIO {
		for i := range list {
			if list[i].Number == number {
				return &list[i]
			}
		}
		list = append(list, DeviceIO{Device: r.device(number), Number: number})
		return &list[len(list)-1]
	}
	each := func(file string, line func(fields []string)) error {
		controller := "blkio"
		if r.v2 {
			controller = "io"
		}
		if r.mounts[controller] == "" {
			return nil
		}
		text, err := r.file(controller, group, file)
		if errors.Is(err, fs.ErrNotExist) { // no blk-throttle, or group not in this hierarchy
			return nil
		}
		for l := range strings.Lines(string(text)) {
			if fields := strings.Fields(l); len(fields) > 2 {
				line(fields)
			}
		}
		return err
	}
	if r.v2 {
		err := each("io.stat", func(fields []string) {
			d := of(fields[0])
			for _, f := range fields[1:] {
				key, text, _ := strings.Cut(f, "=")
				if to := map[string]*uint64{"rbytes": &d.ReadBytes, "wbytes": &d.WrittenBytes, "rios": &d.Reads,
					"wios": &d.Writes}[key]; to != nil {
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
	err := each("blkio.throttle.io_service_bytes",
		split(func(d *DeviceIO) *uint64 { return &d.ReadBytes }, func(d *DeviceIO) *uint64 { return &d.WrittenBytes }))
	return list, errors.Join(err,
		each("blkio.throttle.io_serviced",
			split(func(d *DeviceIO) *uint64 { return &d.Reads }, func(d *DeviceIO) *uint64 { return &d.Writes })))
}

// device returns the path of the block device with this number, such as 8:0, or the number if there is none.
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

// stalls reads a group's pressure of one kind: cpu, memory or io. It returns nil if pressure is unavailable, which
// can be turned off per group.
func (r *Reader) stalls(group, kind string) *Pressure {
	var text []byte
	var err error
	if group == "/" {
		text, err = r.ReadFile("/proc/pressure/" + kind)
	} else {
		text, err = r.file("memory", group, kind+".pressure")
	}
	if err != nil {
		return nil
	}
	return ParsePressure(string(text))
}

// ParsePressure parses a file of pressure stall information, /proc/pressure/memory or memory.pressure of a group. It
// returns nil if it has no totals.
func ParsePressure(text string) *Pressure {
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

// sharesOf converts a weight of cgroup v2 to CPU shares of cgroup v1 (KEP-2254).
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}
