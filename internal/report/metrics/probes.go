package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Probes records the results of containers' probes.
type Probes struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// The values of the label result of prober_probe_total.
const (
	ProbeSuccessful = "successful"
	ProbeFailed     = "failed"
	ProbeUnknown    = "unknown"
)

var probeResults = [...]string{ProbeSuccessful, ProbeFailed, ProbeUnknown}

func newProbes(f factory) *Probes {
	return &Probes{
		total: f.counterVec("prober_probe_total",
			"Cumulative number of a liveness, readiness or startup probe for a container by result.",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		duration: f.histogramVec("prober_probe_duration_seconds", "Duration in seconds for a probe response.",
			prometheus.DefBuckets, "probe_type", "container", "pod", "namespace"),
	}
}

// Tried records one run of a probe and its result.
func (p *Probes) Tried(of *v1.Pod, container string, kind pod.ProbeKind, result string, took time.Duration) {
	p.total.WithLabelValues(probeType(kind), result, container, of.Name, of.Namespace, string(of.UID)).Inc()
	p.duration.WithLabelValues(probeType(kind), container, of.Name, of.Namespace).Observe(took.Seconds())
}

// Dropped removes the metrics of a probe whose pod is gone.
func (p *Probes) Dropped(of *v1.Pod, container string, kind pod.ProbeKind) {
	for _, result := range probeResults {
		p.total.DeleteLabelValues(probeType(kind), result, container, of.Name, of.Namespace, string(of.UID))
	}
	p.duration.DeleteLabelValues(probeType(kind), container, of.Name, of.Namespace)
}

func probeType(kind pod.ProbeKind) string {
	switch kind {
	case pod.ProbeLiveness:
		return "Liveness"
	case pod.ProbeReadiness:
		return "Readiness"
	default:
		return "Startup"
	}
}
