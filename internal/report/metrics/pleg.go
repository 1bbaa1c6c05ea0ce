package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PLEG records how the agent follows the state of the runtime: the event stream and the relists.
type PLEG struct {
	relistDuration, relistInterval, podRelist prometheus.Histogram
	lastSeen                                  prometheus.Gauge
	discarded                                 prometheus.Counter
	connected, failed                         prometheus.Counter
	latency                                   prometheus.Histogram
}

func newPLEG(f factory) *PLEG {
	return &PLEG{
		relistDuration: f.histogram("kubelet_pleg_relist_duration_seconds",
			"Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets),
		relistInterval: f.histogram("kubelet_pleg_relist_interval_seconds",
			"Interval in seconds between relisting in PLEG.", prometheus.DefBuckets),
		podRelist: f.histogram("kubelet_pleg_pod_relist_duration_seconds",
			"Duration in seconds for relisting a single pod in PLEG.", prometheus.DefBuckets),
		lastSeen:  f.gauge("kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active."),
		discarded: f.counter("kubelet_pleg_discard_events", "The number of discard events in PLEG."),
		connected: f.counter("kubelet_evented_pleg_connection_success_count",
			"The number of times a streaming client was obtained to receive CRI Events."),
		failed: f.counter("kubelet_evented_pleg_connection_error_count",
			"The number of errors encountered during the establishment of streaming connection with the CRI runtime."),
		latency: f.histogram("kubelet_evented_pleg_connection_latency_seconds",
			"The latency of streaming connection with the CRI runtime, measured in seconds.", prometheus.DefBuckets),
	}
}

// Relisted records a relist of all pods: when it began, its duration, and the time since the beginning of the previous
// relist, zero for the first one. If it succeeded, the cache is complete as of begun.
func (p *PLEG) Relisted(begun time.Time, took, interval time.Duration, err error) {
	p.relistDuration.Observe(took.Seconds())
	if interval > 0 {
		p.relistInterval.Observe(interval.Seconds())
	}
	if err == nil {
		p.lastSeen.Set(float64(begun.UnixNano()) / 1e9)
	}
}

// PodRelisted records the duration of a relist of one pod.
func (p *PLEG) PodRelisted(took time.Duration) { p.podRelist.Observe(took.Seconds()) }

// EventDiscarded records that an event was ignored: it isn't about a pod, or its object is gone.
func (p *PLEG) EventDiscarded() { p.discarded.Inc() }

// Event records the age of an event when it was received from the stream.
func (p *PLEG) Event(latency time.Duration) { p.latency.Observe(latency.Seconds()) }

// Stream records an event of the runtime's event stream: it was opened (err is nil), or it couldn't be opened or was
// interrupted (err).
func (p *PLEG) Stream(err error) {
	if err != nil {
		p.failed.Inc()
	} else {
		p.connected.Inc()
	}
}
