package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Evictions counts evicted pods.
type Evictions struct {
	pods *prometheus.CounterVec
	ages *prometheus.HistogramVec
}

func newEvictions(f factory) *Evictions {
	return &Evictions{
		f.counterVec("kubelet_evictions", "Cumulative number of pod evictions by eviction signal", "eviction_signal"),
		f.histogramVec("kubelet_eviction_stats_age_seconds",
			"Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
			prometheus.DefBuckets, "eviction_signal"),
	}
}

// Evicted records the eviction of a pod by its signal: emptydirfs.limit, ephemeralpodfs.limit or
// ephemeralcontainerfs.limit for the pod's own limits, memory.available and others for the node's.
func (e *Evictions) Evicted(signal string) { e.pods.WithLabelValues(signal).Inc() }

// Decided records the age of the measurement on which a decision about the node's pressure was based, by the eviction
// signal.
func (e *Evictions) Decided(signal string, age time.Duration) {
	e.ages.WithLabelValues(signal).Observe(age.Seconds())
}
