package metrics

import "github.com/prometheus/client_golang/prometheus"

// Garbage records removals by garbage collection.
type Garbage struct {
	images, freed       *prometheus.CounterVec
	containers, logDirs prometheus.Counter
}

func newGarbage(f factory) *Garbage {
	return &Garbage{
		images: f.counterVec("kubelet_image_garbage_collected_total",
			"Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
			"reason"),
		freed: f.counterVec("deckhand_image_garbage_collected_bytes_total",
			"Size of the images garbage collected, as the runtime counts it.", "reason"),
		containers: f.counter("deckhand_ended_containers_removed_total",
			"Number of ended containers removed by themselves, not with their sandbox."),
		logDirs: f.counter("deckhand_log_directories_removed_total",
			"Number of log directories removed because their pods are gone."),
	}
}

// ImageCollected records that an image of this size in bytes was removed; the reason is space or age.
func (g *Garbage) ImageCollected(reason string, bytes uint64) {
	g.images.WithLabelValues(reason).Inc()
	g.freed.WithLabelValues(reason).Add(float64(bytes))
}

// RemovedContainer records that an exited container was removed.
func (g *Garbage) RemovedContainer() { g.containers.Inc() }

// LogDirsRemoved records that n log directories of removed pods were deleted.
func (g *Garbage) LogDirsRemoved(n int) { g.logDirs.Add(float64(n)) }
