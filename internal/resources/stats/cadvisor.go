package stats

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Machine describes the host, for /metrics/cadvisor.
type Machine struct {
	Cores, PhysicalCores, Sockets int
	Memory, Swap                  uint64 // bytes
	BootID, MachineID, SystemUUID string
}

// subject is a cgroup with the labels of its metrics.
type subject struct {
	*Group
	container, image, name, namespace, pod string
	started                                time.Time
}

func (s *subject) labels(more ...string) []string {
	return append([]string{s.container, s.Path, s.image, s.name, s.namespace, s.pod}, more...)
}

// plainMetric has one value for each cgroup.
type plainMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// of returns the value, and false if there is none.
	of func(*subject) (float64, bool)
}

// ContainerMetrics returns the metrics of /metrics/cadvisor, with the names, labels and units of cAdvisor, which
// dashboards use. Values that couldn't be read are omitted.
func (s *Sampler) ContainerMetrics(machine func() (Machine, error)) prometheus.Collector {
	c := &collector{sampler: s, level: Detailed}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help,
			append([]string{"container", "id", "image", "name", "namespace", "pod"}, more...), nil)
		c.descs = append(c.descs, d)
		return d
	}
	plain := plainMetrics(desc)
	usage := desc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", "cpu")
	failures := desc("container_memory_failures_total", "Cumulative count of memory allocation failures.",
		"failure_type", "scope")
	processes := desc("container_processes", "Number of processes running inside the container.")
	fsUsage := desc("container_fs_usage_bytes",
		"Number of bytes that are consumed by the container on this filesystem.", "device")
	fsLimit := desc("container_fs_limit_bytes",
		"Number of bytes that can be consumed by the container on this filesystem.", "device")
	// Inodes are reported only for whole file systems: containers share the inodes of their file system.
	fsInodes := desc("container_fs_inodes_total", "Number of Inodes", "device")
	fsInodesFree := desc("container_fs_inodes_free", "Number of available Inodes", "device")
	ioMetric := func(name, help string) *prometheus.Desc { return desc("container_fs_"+name, help, "device") }
	reads, readBytes := ioMetric("reads_total", "Cumulative count of reads completed"),
		ioMetric("reads_bytes_total", "Cumulative count of bytes read")
	writes, writeBytes := ioMetric("writes_total", "Cumulative count of writes completed"),
		ioMetric("writes_bytes_total", "Cumulative count of bytes written")
	blkio := desc("container_blkio_device_usage_total", "Blkio Device bytes usage", "device", "major", "minor",
		"operation")
	disks := diskMetrics(desc)
	descriptors := desc("container_file_descriptors", "Number of open file descriptors for the container.")
	sockets := desc("container_sockets", "Number of open sockets for the container.")
	ulimits := desc("container_ulimits_soft",
		"Soft ulimit values for the container root process. Unlimited if -1, except priority and nice", "ulimit")
	net := func(direction, name, help string) *prometheus.Desc {
		return desc("container_network_"+direction+"_"+name, help, "interface")
	}
	network := []struct {
		desc *prometheus.Desc
		of   func(*Interface) uint64
	}{
		{net("receive", "bytes_total", "Cumulative count of bytes received"), func(i *Interface) uint64 {
			return i.Received.Bytes
		}},
		{net("receive", "packets_total", "Cumulative count of packets received"), func(i *Interface) uint64 {
			return i.Received.Packets
		}},
		{net("receive", "errors_total", "Cumulative count of errors encountered while receiving"),
			func(i *Interface) uint64 { return i.Received.Errors }},
		{net("receive", "packets_dropped_total", "Cumulative count of packets dropped while receiving"),
			func(i *Interface) uint64 { return i.Received.Dropped }},
		{net("transmit", "bytes_total", "Cumulative count of bytes transmitted"), func(i *Interface) uint64 {
			return i.Sent.Bytes
		}},
		{net("transmit", "packets_total", "Cumulative count of packets transmitted"), func(i *Interface) uint64 {
			return i.Sent.Packets
		}},
		{net("transmit", "errors_total", "Cumulative count of errors encountered while transmitting"),
			func(i *Interface) uint64 { return i.Sent.Errors }},
		{net("transmit", "packets_dropped_total", "Cumulative count of packets dropped while transmitting"),
			func(i *Interface) uint64 { return i.Sent.Dropped }},
	}
	failed := prometheus.NewDesc("container_scrape_error",
		"1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
	c.descs = append(c.descs, failed)
	c.failed = func(yes bool, ch chan<- prometheus.Metric) {
		ch <- prometheus.MustNewConstMetric(failed, gauge, bit(yes))
	}
	ofMachine := machineMetrics(c, machine)

	// The usage may have been measured earlier than the capacity of the file system. So the capacity has a timestamp of
	// its own (whole): Prometheus rejects a different value with the same timestamp.
	filesystem := func(ch chan<- prometheus.Metric, s *subject, device string, whole time.Time, fs *statsapi.FsStats) {
		if fs == nil || fs.UsedBytes == nil {
			return
		}
		l := s.labels(device)
		ch <- at(fs.Time.Time, fsUsage, gauge, float64(*fs.UsedBytes), l...)
		if fs.CapacityBytes != nil {
			ch <- at(whole, fsLimit, gauge, float64(*fs.CapacityBytes), l...)
		}
	}
	interfaces := func(ch chan<- prometheus.Metric, s *subject, list []Interface) {
		for i := range list {
			for _, m := range network {
				ch <- at(s.At, m.desc, counter, float64(m.of(&list[i])), s.labels(list[i].Name)...)
			}
		}
	}
	running := func(ch chan<- prometheus.Metric, s *subject, r *Running) {
		ch <- at(s.At, processes, gauge, float64(r.Processes), s.labels()...)
		if f := r.Files; f != nil {
			ch <- at(s.At, descriptors, gauge, float64(f.Open), s.labels()...)
			ch <- at(s.At, sockets, gauge, float64(f.Sockets), s.labels()...)
			ch <- at(s.At, ulimits, gauge, f.Limit, s.labels("max_open_files")...)
		}
	}
	of := func(ch chan<- prometheus.Metric, s *subject) {
		if s.At.IsZero() {
			return
		}
		for i := range plain {
			if v, ok := plain[i].of(s); ok {
				ch <- at(s.At, plain[i].desc, plain[i].kind, v, s.labels()...)
			}
		}
		if s.CPU != nil {
			ch <- at(s.At, usage, counter, seconds(s.CPU.Usage), s.labels("total")...)
		}
		if m := s.Memory; m != nil {
			ch <- at(s.At, failures, counter, float64(m.OwnPageFaults), s.labels("pgfault", "container")...)
			ch <- at(s.At, failures, counter, float64(m.OwnMajorPageFaults), s.labels("pgmajfault", "container")...)
			ch <- at(s.At, failures, counter, float64(m.PageFaults), s.labels("pgfault", "hierarchy")...)
			ch <- at(s.At, failures, counter, float64(m.MajorPageFaults), s.labels("pgmajfault", "hierarchy")...)
		}
		for _, d := range s.IO {
			l := s.labels(d.Device)
			ch <- at(s.At, reads, counter, float64(d.Reads), l...)
			ch <- at(s.At, readBytes, counter, float64(d.ReadBytes), l...)
			ch <- at(s.At, writes, counter, float64(d.Writes), l...)
			ch <- at(s.At, writeBytes, counter, float64(d.WrittenBytes), l...)
			major, minor, _ := strings.Cut(d.Number, ":")
			ch <- at(s.At, blkio, counter, float64(d.ReadBytes), s.labels(d.Device, major, minor, "Read")...)
			ch <- at(s.At, blkio, counter, float64(d.WrittenBytes), s.labels(d.Device, major, minor, "Write")...)
		}
	}
	c.collect = func(sample *Sample, ch chan<- prometheus.Metric) {
		ofMachine(ch)
		machine := sample.Node
		machine.IO = nil // the disks' own counters have more details
		root := &subject{Group: &machine, started: sample.Booted}
		of(ch, root)
		for i := range sample.Disks {
			d := &sample.Disks[i]
			l := root.labels(d.Device)
			ch <- at(machine.At, reads, counter, float64(d.Reads), l...)
			ch <- at(machine.At, readBytes, counter, float64(d.SectorsRead*sector), l...)
			ch <- at(machine.At, writes, counter, float64(d.Writes), l...)
			ch <- at(machine.At, writeBytes, counter, float64(d.SectorsWritten*sector), l...)
			for _, m := range disks {
				ch <- at(machine.At, m.desc, m.kind, m.of(d), l...)
			}
		}
		if fs := sample.NodeFS; fs != nil {
			filesystem(ch, root, sample.Device, fs.Time.Time, fs)
			l := root.labels(sample.Device)
			ch <- at(fs.Time.Time, fsInodes, gauge, float64(*fs.Inodes), l...)
			ch <- at(fs.Time.Time, fsInodesFree, gauge, float64(*fs.InodesFree), l...)
		}
		interfaces(ch, root, sample.Interfaces)
		for i := range sample.System {
			of(ch, &subject{Group: &sample.System[i].Group, started: sample.System[i].Started})
		}
		for i := range sample.Pods {
			p := &sample.Pods[i]
			own := &subject{Group: &p.Group, namespace: p.Namespace, pod: p.Name, started: p.Started}
			of(ch, own)
			sandbox := &subject{Group: &p.Sandbox, image: p.SandboxImage, name: p.SandboxID, namespace: p.Namespace,
				pod: p.Name, started: p.Started}
			of(ch, sandbox)
			if !p.Sandbox.At.IsZero() {
				running(ch, sandbox, &p.InSandbox)
				interfaces(ch, sandbox, p.Interfaces)
			}
			for j := range p.Containers {
				c := &p.Containers[j]
				one := &subject{Group: &c.Group, container: c.Name, image: c.Image, name: c.ID, namespace: p.Namespace,
					pod: p.Name, started: c.Started}
				of(ch, one)
				filesystem(ch, one, sample.ImageDevice, sample.ImageAt, c.Rootfs)
				if !c.At.IsZero() {
					running(ch, one, &c.Running)
				}
			}
		}
	}
	return c
}

// plainMetrics returns the metrics without additional labels.
func plainMetrics(desc func(name, help string, more ...string) *prometheus.Desc) []plainMetric {
	var plain []plainMetric
	add := func(name, help string, kind prometheus.ValueType, of func(*subject) (float64, bool)) {
		plain = append(plain, plainMetric{desc(name, help), kind, of})
	}
	cpu := func(name, help string, of func(*counters.CPU) float64) {
		add(name, help, counter, func(s *subject) (float64, bool) {
			if s.CPU == nil {
				return 0, false
			}
			return of(s.CPU), true
		})
	}
	throttled := func(name, help string, of func(*counters.CPU) float64) {
		add(name, help, counter, func(s *subject) (float64, bool) {
			if s.CPU == nil || s.CPU.Quota <= 0 {
				return 0, false
			}
			return of(s.CPU), true
		})
	}
	memory := func(name, help string, kind prometheus.ValueType, of func(*counters.Memory) uint64) {
		add(name, help, kind, func(s *subject) (float64, bool) {
			if s.Memory == nil {
				return 0, false
			}
			v := of(s.Memory)
			if v == counters.Unlimited {
				v = 0 // cAdvisor's value for no limit
			}
			return float64(v), true
		})
	}
	pressure := func(what, word string, of func(*Group) *counters.Pressure) {
		for state, help := range map[string]string{"stalled": "no tasks in the container could make progress",
			"waiting": "tasks in the container have waited"} {
			add("container_pressure_"+what+"_"+state+"_seconds_total",
				"Total time duration "+help+" due to "+word+" congestion.", counter, func(s *subject) (float64, bool) {
					p := of(s.Group)
					switch {
					case p == nil:
						return 0, false
					case state == "stalled":
						return float64(p.Full.Total) / 1e6, true
					default:
						return float64(p.Some.Total) / 1e6, true
					}
				})
		}
	}
	cpu("container_cpu_user_seconds_total",
		"Cumulative user cpu time consumed in seconds.", func(c *counters.CPU) float64 { return seconds(c.User) })
	cpu("container_cpu_system_seconds_total",
		"Cumulative system cpu time consumed in seconds.", func(c *counters.CPU) float64 { return seconds(c.System) })
	throttled("container_cpu_cfs_periods_total",
		"Number of elapsed enforcement period intervals.", func(c *counters.CPU) float64 { return float64(c.Periods) })
	throttled("container_cpu_cfs_throttled_periods_total",
		"Number of throttled period intervals.", func(c *counters.CPU) float64 { return float64(c.ThrottledPeriods) })
	throttled("container_cpu_cfs_throttled_seconds_total",
		"Total time duration the container has been throttled.", func(c *counters.CPU) float64 {
			return seconds(c.Throttled)
		})
	add("container_spec_cpu_shares", "CPU share of the container.", gauge, func(s *subject) (float64, bool) {
		return value(s.CPU, func(c *counters.CPU) float64 {
			return float64(c.Shares)
		}, func(c *counters.CPU) bool { return c.Shares > 0 })
	})
	add("container_spec_cpu_period", "CPU period of the container.", gauge, func(s *subject) (float64, bool) {
		return value(s.CPU, func(c *counters.CPU) float64 {
			return float64(c.Period)
		}, func(c *counters.CPU) bool { return c.Period > 0 })
	})
	add("container_spec_cpu_quota", "CPU quota of the container.", gauge, func(s *subject) (float64, bool) {
		return value(s.CPU, func(c *counters.CPU) float64 {
			return float64(c.Quota)
		}, func(c *counters.CPU) bool { return c.Quota > 0 })
	})
	memory("container_memory_cache", "Number of bytes of page cache memory.", gauge, func(m *counters.Memory) uint64 {
		return m.Cache
	})
	memory("container_memory_rss", "Size of RSS in bytes.", gauge, func(m *counters.Memory) uint64 { return m.RSS })
	memory("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", gauge,
		func(m *counters.Memory) uint64 { return m.Kernel })
	memory("container_memory_mapped_file", "Size of memory mapped files in bytes.", gauge,
		func(m *counters.Memory) uint64 { return m.Mapped })
	memory("container_memory_swap", "Container swap usage in bytes.", gauge, func(m *counters.Memory) uint64 {
		return m.Swap
	})
	memory("container_memory_failcnt", "Number of memory usage hits limits", counter, func(m *counters.Memory) uint64 {
		return m.Failures
	})
	memory("container_memory_usage_bytes",
		"Current memory usage in bytes, including all memory regardless of when it was accessed", gauge,
		func(m *counters.Memory) uint64 { return m.Usage })
	memory("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", gauge,
		func(m *counters.Memory) uint64 { return m.Max })
	memory("container_memory_working_set_bytes", "Current working set in bytes.", gauge,
		func(m *counters.Memory) uint64 {
			return m.WorkingSet
		})
	memory("container_memory_total_active_file_bytes", "Current total active file in bytes.", gauge,
		func(m *counters.Memory) uint64 { return m.ActiveFile })
	memory("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", gauge,
		func(m *counters.Memory) uint64 { return m.InactiveFile })
	memory("container_spec_memory_limit_bytes", "Memory limit for the container.", gauge,
		func(m *counters.Memory) uint64 { return m.Limit })
	memory("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", gauge,
		func(m *counters.Memory) uint64 { return m.SwapLimit })
	memory("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.", gauge,
		func(m *counters.Memory) uint64 { return m.Reservation })
	memory("container_oom_events_total", "Count of out of memory events observed for the container", counter,
		func(m *counters.Memory) uint64 { return m.OOMKills })
	add("container_threads", "Number of threads running inside the container", gauge, func(s *subject) (float64, bool) {
		return value(s.PIDs, func(p *counters.PIDs) float64 { return float64(p.Current) }, nil)
	})
	add("container_threads_max",
		"Maximum number of threads allowed inside the container, infinity if value is zero", gauge,
		func(s *subject) (float64, bool) {
			return value(s.PIDs, func(p *counters.PIDs) float64 {
				if p.Limit == counters.Unlimited {
					return 0
				}
				return float64(p.Limit)
			}, nil)
		})
	pressure("cpu", "CPU", func(g *Group) *counters.Pressure { return g.CPUPressure })
	pressure("memory", "memory", func(g *Group) *counters.Pressure { return g.MemoryPressure })
	pressure("io", "IO", func(g *Group) *counters.Pressure { return g.IOPressure })
	add("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", gauge,
		func(s *subject) (float64, bool) {
			return float64(s.started.Unix()), !s.started.IsZero()
		})
	add("container_last_seen", "Last time a container was seen by the exporter", gauge,
		func(s *subject) (float64, bool) { return float64(s.At.Unix()), !s.At.IsZero() })
	return plain
}

// diskMetric has one value for each disk of the machine.
type diskMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Disk) float64
}

func diskMetrics(desc func(name, help string, more ...string) *prometheus.Desc) []diskMetric {
	of := func(name, help string, kind prometheus.ValueType, of func(*Disk) float64) diskMetric {
		return diskMetric{desc("container_fs_"+name, help, "device"), kind, of}
	}
	return []diskMetric{
		of("reads_merged_total", "Cumulative count of reads merged", counter, func(d *Disk) float64 {
			return float64(d.ReadsMerged)
		}),
		of("sector_reads_total", "Cumulative count of sector reads completed", counter, func(d *Disk) float64 {
			return float64(d.SectorsRead)
		}),
		of("read_seconds_total", "Cumulative count of seconds spent reading", counter, func(d *Disk) float64 {
			return float64(d.Reading) / 1e3
		}),
		of("writes_merged_total", "Cumulative count of writes merged", counter, func(d *Disk) float64 {
			return float64(d.WritesMerged)
		}),
		of("sector_writes_total", "Cumulative count of sector writes completed", counter, func(d *Disk) float64 {
			return float64(d.SectorsWritten)
		}),
		of("write_seconds_total", "Cumulative count of seconds spent writing", counter, func(d *Disk) float64 {
			return float64(d.Writing) / 1e3
		}),
		of("io_current", "Number of I/Os currently in progress", gauge, func(d *Disk) float64 {
			return float64(d.InProgress)
		}),
		of("io_time_seconds_total", "Cumulative count of seconds spent doing I/Os", counter, func(d *Disk) float64 {
			return float64(d.Busy) / 1e3
		}),
		of("io_time_weighted_seconds_total", "Cumulative weighted I/O time in seconds", counter, func(d *Disk) float64 {
			return float64(d.Weighted) / 1e3
		}),
	}
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

// value returns of(from), and true. It returns false if from is nil, or if when isn't nil and when(from) is false.
func value[T any](from *T, of func(*T) float64, when func(*T) bool) (float64, bool) {
	if from == nil || when != nil && !when(from) {
		return 0, false
	}
	return of(from), true
}

// machineMetrics returns a function that collects the machine's metrics.
func machineMetrics(c *collector, machine func() (Machine, error)) func(chan<- prometheus.Metric) {
	labels := []string{"boot_id", "machine_id", "system_uuid"}
	desc := func(name, help string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, labels, nil)
		c.descs = append(c.descs, d)
		return d
	}
	cores := desc("machine_cpu_cores", "Number of logical CPU cores.")
	physical := desc("machine_cpu_physical_cores", "Number of physical CPU cores.")
	sockets := desc("machine_cpu_sockets", "Number of CPU sockets.")
	memory := desc("machine_memory_bytes", "Amount of memory installed on the machine.")
	swap := desc("machine_swap_bytes", "Amount of swap memory available on the machine.")
	failed := prometheus.NewDesc("machine_scrape_error",
		"1 if there was an error while getting machine metrics, 0 otherwise.", nil, nil)
	c.descs = append(c.descs, failed)
	return func(ch chan<- prometheus.Metric) {
		m, err := machine()
		ch <- prometheus.MustNewConstMetric(failed, gauge, bit(err != nil))
		if err != nil {
			c.sampler.Log.Error(err, "Failed to read machine info")
			return
		}
		for d, v := range map[*prometheus.Desc]float64{cores: float64(m.Cores), physical: float64(m.PhysicalCores),
			sockets: float64(m.Sockets), memory: float64(m.Memory), swap: float64(m.Swap)} {
			ch <- prometheus.MustNewConstMetric(d, gauge, v, m.BootID, m.MachineID, m.SystemUUID)
		}
	}
}
