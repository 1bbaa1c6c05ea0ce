package metrics

import "github.com/prometheus/client_golang/prometheus"

// Garbage records what was removed from the node because nobody needs it.
type Garbage struct {
	images     *prometheus.CounterVec
	logFolders prometheus.Counter
}

func newGarbage() *Garbage {
	return &Garbage{
		images: counterVec("image_garbage_collected_total",
			"Total number of images garbage collected by the kubelet, whether through disk usage or image age.", "reason"),
		logFolders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "deckhand_log_folders_removed_total", Help: "Number of log folders removed because their pods are gone.",
		}),
	}
}

func (g *Garbage) collectors() []prometheus.Collector {
	return []prometheus.Collector{g.images, g.logFolders}
}

// ImageCollected records that an image was removed; the reason is space or age.
func (g *Garbage) ImageCollected(reason string) { g.images.WithLabelValues(reason).Inc() }

// LogFoldersRemoved records that n folders of logs were removed whose pods are gone.
func (g *Garbage) LogFoldersRemoved(n int) { g.logFolders.Add(float64(n)) }
