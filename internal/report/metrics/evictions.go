package metrics

import "github.com/prometheus/client_golang/prometheus"

// Evictions counts evicted pods.
type Evictions struct {
	pods *prometheus.CounterVec
}

func newEvictions(f factory) *Evictions {
	return &Evictions{f.counterVec("evictions", "Cumulative number of pod evictions by eviction signal",
		"eviction_signal")}
}

// Evicted records the eviction of a pod by its signal: emptydirfs.limit, ephemeralpodfs.limit or
// ephemeralcontainerfs.limit for the pod's own limits, memory.available and others for the node's.
func (e *Evictions) Evicted(signal string) { e.pods.WithLabelValues(signal).Inc() }
