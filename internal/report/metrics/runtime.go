package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Runtime records the calls to the container runtime.
type Runtime struct {
	total    *prometheus.CounterVec
	failed   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRuntime(f factory) *Runtime {
	const label = "operation_type"
	return &Runtime{
		total: f.counterVec("kubelet_runtime_operations_total",
			"Cumulative number of runtime operations by operation type.", label),
		failed: f.counterVec("kubelet_runtime_operations_errors_total",
			"Cumulative number of runtime operation errors by operation type.", label),
		duration: f.histogramVec("kubelet_runtime_operations_duration_seconds",
			"Duration in seconds of runtime operations. Broken down by operation type.",
			prometheus.ExponentialBuckets(.005, 2.5, 14), label),
	}
}

// Operation records one call: its name ("run_podsandbox", "create_container", ...), duration and error.
func (r *Runtime) Operation(name string, d time.Duration, err error) {
	r.total.WithLabelValues(name).Inc()
	r.duration.WithLabelValues(name).Observe(d.Seconds())
	if err != nil {
		r.failed.WithLabelValues(name).Inc()
	}
}
