package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// The values of the label operation_name. VolumeMount includes updates of a volume's content: the kubelet updates a
// volume by mounting it again, and has no separate name for that.
const (
	VolumeMount   = "volume_mount"
	VolumeUnmount = "volume_unmount"
)

// The values of the label metric_source, which says how usage is measured. SourceDu stands for a walk through the
// directory. The name is the kubelet's; the agent doesn't run du.
const (
	SourceDu     = "du"
	SourceQuota  = "fsquota"
	SourceStatfs = "statfs"
)

// Volumes records operations on volumes. Some of their names, unlike those of other metrics, don't begin with
// kubelet_.
//
// The kubelet's force_cleaned_failed_volume_operations_total is missing: it counts volumes that were cleaned up
// because they couldn't be reconstructed from disk. deckhand doesn't reconstruct volumes. It unmounts and removes
// everything of pods that no source has, which orphan_pod_cleaned_volumes counts.
type Volumes struct {
	operations           *prometheus.HistogramVec
	total                *prometheus.HistogramVec
	orphans, orphanFails prometheus.Gauge
	rebuilt, rebuildFail prometheus.Counter
	measuring            *prometheus.HistogramVec
	calls                *prometheus.HistogramVec

	imagesRequested, imagesMounted, imagesFailed prometheus.Counter

	mu sync.Mutex
	// failing are the orphaned pods that couldn't be cleaned up.
	failing map[types.UID]struct{}
}

func newVolumes(f factory) *Volumes {
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	return &Volumes{
		failing: map[types.UID]struct{}{},
		operations: f.histogramVec("storage_operation_duration_seconds", "Storage operation duration", buckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		total: f.histogramVec("volume_operation_total_seconds", "Storage operation end to end duration in seconds",
			buckets, "plugin_name", "operation_name"),
		orphans: f.gauge("kubelet_orphan_pod_cleaned_volumes",
			"The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep."),
		orphanFails: f.gauge("kubelet_orphan_pod_cleaned_volumes_errors",
			"The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep."),
		rebuilt: f.counter("reconstruct_volume_operations_total",
			"The number of volumes that were attempted to be reconstructed from the operating system during "+
				"kubelet startup. This includes both successful and failed reconstruction."),
		rebuildFail: f.counter("reconstruct_volume_operations_errors_total",
			"The number of volumes that failed reconstruction from the operating system during kubelet startup."),
		measuring: f.histogramVec("kubelet_volume_metric_collection_duration_seconds",
			"Duration in seconds to calculate volume stats", prometheus.DefBuckets, "metric_source"),
		calls: f.histogramVec("csi_operations_seconds", "Container Storage Interface operation duration with gRPC "+
			"error code status total", buckets, "driver_name", "method_name", "grpc_status_code", "migrated"),
		imagesRequested: f.counter("kubelet_image_volume_requested_total", "Number of requested image volumes."),
		imagesMounted: f.counter("kubelet_image_volume_mounted_succeed_total",
			"Number of successful image volume mounts."),
		imagesFailed: f.counter("kubelet_image_volume_mounted_errors_total",
			"Number of failed image volume mounts."),
	}
}

// Operation records one attempt of an operation on a volume (VolumeMount, ...). plugin is a name such as
// kubernetes.io/empty-dir. migrated says that the volume is of a kind that a CSI driver has replaced.
func (v *Volumes) Operation(plugin, operation string, migrated bool, took time.Duration, failed bool) {
	status := "success"
	if failed {
		status = "fail-unknown"
	}
	v.operations.WithLabelValues(plugin, operation, status, strconv.FormatBool(migrated)).Observe(took.Seconds())
}

// Completed records the time from the request for an operation on a volume to its completion, including the time in
// the queue.
func (v *Volumes) Completed(plugin, operation string, took time.Duration) {
	v.total.WithLabelValues(plugin, operation).Observe(took.Seconds())
}

// OrphanCleaned records that the volumes of a pod that no source has were cleaned up, or couldn't be. The metrics count
// all pods since the agent started, because there is no periodic sweep.
func (v *Volumes) OrphanCleaned(pod types.UID, failed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if failed {
		v.failing[pod] = struct{}{}
	} else {
		delete(v.failing, pod)
		v.orphans.Inc()
	}
	v.orphanFails.Set(float64(len(v.failing)))
}

// Reconstructed records that a volume mounted by an earlier agent was taken over, or couldn't be.
func (v *Volumes) Reconstructed(failed bool) {
	v.rebuilt.Inc()
	if failed {
		v.rebuildFail.Inc()
	}
}

// CSICall records a call to a CSI driver with the whole gRPC name of its method, and its status code. migrated says
// that the call was for a volume of a kind that the driver has replaced, such as awsElasticBlockStore.
func (v *Volumes) CSICall(driver, method, code string, migrated bool, took time.Duration) {
	v.calls.WithLabelValues(driver, method, code, strconv.FormatBool(migrated)).Observe(took.Seconds())
}

// ImageRequested records an attempt to provide the image of a volume.
func (v *Volumes) ImageRequested() { v.imagesRequested.Inc() }

// ImageMounted records the result of an attempt to provide the image of a volume: whether the runtime can mount it.
func (v *Volumes) ImageMounted(failed bool) {
	if failed {
		v.imagesFailed.Inc()
	} else {
		v.imagesMounted.Inc()
	}
}

// Measured records how long it took to measure the usage of a directory or file system, by the method (SourceDu,
// ...).
func (v *Volumes) Measured(source string, took time.Duration) {
	v.measuring.WithLabelValues(source).Observe(took.Seconds())
}

// VolumeCounts are the numbers of volumes at one moment, by plugin.
type VolumeCounts struct {
	Desired, Actual map[string]int
}

// CollectVolumes registers the numbers of volumes, which count returns at each scrape. It may be called once; count
// must not block.
func (m *Metrics) CollectVolumes(count func() VolumeCounts) {
	collect(m.factory, count, gaugeVec("volume_manager_total_volumes", "Number of volumes in Volume Manager",
		func(n VolumeCounts, add series) {
			for state, counts := range map[string]map[string]int{"desired_state_of_world": n.Desired,
				"actual_state_of_world": n.Actual} {
				for plugin, count := range counts {
					add(float64(count), plugin, state)
				}
			}
		}, "plugin_name", "state"))
}
