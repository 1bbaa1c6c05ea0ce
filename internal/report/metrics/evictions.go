package metrics

import "github.com/prometheus/client_golang/prometheus"

// Evictions counts evicted pods.
type Evictions struct {
	pods *prometheus.CounterVec
}

func newEvictions() *Evictions {
	return &Evictions{counterVec("evictions", "Cumulative number of pod evictions by eviction signal",
		"eviction_signal")}
}

func (e *Evictions) collectors() []prometheus.Collector { return []prometheus.Collector{e.pods} }

// Evicted records the eviction of a pod by its signal: emptydirfs.limit, ephemeralpodfs.limit or
// ephemeralcontainerfs.limit for the pod's own limits, memory.available and others for the node's.
func (e *Evictions) Evicted(signal string) { e.pods.WithLabelValues(signal).Inc() }
