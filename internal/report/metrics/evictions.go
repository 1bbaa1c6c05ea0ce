package metrics

import "github.com/prometheus/client_golang/prometheus"

// Evictions records which pods have to end though they are wanted.
type Evictions struct {
	pods *prometheus.CounterVec
}

func newEvictions() *Evictions {
	return &Evictions{counterVec("evictions", "Cumulative number of pod evictions by eviction signal",
		"eviction_signal")}
}

func (e *Evictions) collectors() []prometheus.Collector { return []prometheus.Collector{e.pods} }

// Evicted records that a pod has to end, for what the signal says: emptydirfs.limit,
// ephemeralpodfs.limit or ephemeralcontainerfs.limit for its own limits, memory.available and others for the node's.
func (e *Evictions) Evicted(signal string) { e.pods.WithLabelValues(signal).Inc() }
