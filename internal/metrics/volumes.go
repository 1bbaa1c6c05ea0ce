package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label operation_name.
const (
	VolumeMount   = "volume_mount"
	VolumeUnmount = "volume_unmount"
	VolumeMap     = "map_volume" // of devices
	VolumeUnmap   = "unmap_volume"
	DeviceUnmount = "unmount_device" // what was staged once for all pods
)

// Volumes records what is done with volumes. Their names, unlike others, don't begin with kubelet_.
type Volumes struct {
	operations           *prometheus.HistogramVec
	total                *prometheus.HistogramVec
	orphans, orphanFails prometheus.Gauge
	rebuilt, rebuildFail prometheus.Counter
}

func newVolumes() *Volumes {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	vec := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help})
	}
	return &Volumes{
		operations:  vec("storage_operation_duration_seconds", "Storage operation duration", "volume_plugin", "operation_name", "status", "migrated"),
		total:       vec("volume_operation_total_seconds", "Storage operation end to end duration in seconds", "plugin_name", "operation_name"),
		orphans:     gauge("orphan_pod_cleaned_volumes", "The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep."),
		orphanFails: gauge("orphan_pod_cleaned_volumes_errors", "The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep."),
		rebuilt: prometheus.NewCounter(prometheus.CounterOpts{Name: "reconstruct_volume_operations_total",
			Help: "The number of volumes that were attempted to be reconstructed from the operating system during kubelet startup. This includes both successful and failed reconstruction."}),
		rebuildFail: prometheus.NewCounter(prometheus.CounterOpts{Name: "reconstruct_volume_operations_errors_total",
			Help: "The number of volumes that failed reconstruction from the operating system during kubelet startup."}),
	}
}

func (v *Volumes) collectors() []prometheus.Collector {
	return []prometheus.Collector{v.operations, v.total, v.orphans, v.orphanFails, v.rebuilt, v.rebuildFail}
}

// Operation records one try of something that was done with a volume (VolumeMount, ...). The plugin is its
// name, such as kubernetes.io/empty-dir.
func (v *Volumes) Operation(plugin, operation string, took time.Duration, failed bool) {
	status := "success"
	if failed {
		status = "fail-unknown"
	}
	v.operations.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}

// Completed records how long it took from when something was first wanted of a volume until it was
// done, with all tries and the waiting in between.
func (v *Volumes) Completed(plugin, operation string, took time.Duration) {
	v.total.WithLabelValues(plugin, operation).Observe(took.Seconds())
}

// OrphansCleaned records a search for pods that are gone: how many had volumes that were cleaned up, and how many have
// some that couldn't be.
func (v *Volumes) OrphansCleaned(cleaned, failed int) {
	v.orphans.Set(float64(cleaned))
	v.orphanFails.Set(float64(failed))
}

// Reconstructed records how many volumes of an agent before this one were found, and how many of
// those it couldn't be found out of what they are.
func (v *Volumes) Reconstructed(found, failed int) {
	v.rebuilt.Add(float64(found))
	v.rebuildFail.Add(float64(failed))
}

// VolumeCounts are the numbers of volumes at one moment, by plugin.
type VolumeCounts struct {
	Desired, Actual map[string]int
}

// CollectVolumes has count called at each scrape for the numbers of volumes. It is to
// be called at most once, and count must not block.
func (m *Metrics) CollectVolumes(count func() VolumeCounts) {
	m.registry.MustRegister(&volumeCollector{
		count:   count,
		volumes: prometheus.NewDesc("volume_manager_total_volumes", "Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil),
	})
}

type volumeCollector struct {
	count   func() VolumeCounts
	volumes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *volumeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.volumes }

// Collect implements prometheus.Collector.
func (c *volumeCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.count()
	for state, counts := range map[string]map[string]int{"desired_state_of_world": n.Desired, "actual_state_of_world": n.Actual} {
		for plugin, count := range counts {
			ch <- prometheus.MustNewConstMetric(c.volumes, prometheus.GaugeValue, float64(count), plugin, state)
		}
	}
}
