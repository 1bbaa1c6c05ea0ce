package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PLEG records how the agent keeps up with what the runtime has: the event
// stream and the relists.
type PLEG struct {
	relistDuration, relistInterval prometheus.Histogram
	lastSeen                       prometheus.Gauge
	discarded                      prometheus.Counter
	connected, failed              prometheus.Counter
	latency                        prometheus.Histogram
}

func newPLEG() *PLEG {
	return &PLEG{
		relistDuration: histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets),
		relistInterval: histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", prometheus.DefBuckets),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "pleg_last_seen_seconds", Help: "Timestamp in seconds when PLEG was last seen active.",
		}),
		discarded: counter("pleg_discard_events", "The number of discard events in PLEG."),
		connected: counter("evented_pleg_connection_success_count", "The number of times a streaming client was obtained to receive CRI Events."),
		failed:    counter("evented_pleg_connection_error_count", "The number of errors encountered during the establishment of streaming connection with the CRI runtime."),
		latency:   histogram("evented_pleg_connection_latency_seconds", "The latency of streaming connection with the CRI runtime, measured in seconds.", prometheus.DefBuckets),
	}
}

func (p *PLEG) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		p.relistDuration, p.relistInterval, p.lastSeen, p.discarded, p.connected, p.failed, p.latency,
	}
}

// Relisted records a relist that took d and began interval after the one
// before; zero for the first one, which has no interval.
func (p *PLEG) Relisted(d, interval time.Duration) {
	p.relistDuration.Observe(d.Seconds())
	if interval > 0 {
		p.relistInterval.Observe(interval.Seconds())
	}
}

// LastSeen records when what the runtime has was last known for sure.
func (p *PLEG) LastSeen(t time.Time) { p.lastSeen.Set(float64(t.UnixNano()) / 1e9) }

// DiscardEvents records that events were lost and a relist has to make up for them.
func (p *PLEG) DiscardEvents() { p.discarded.Inc() }

// StreamConnected records that the runtime's event stream was opened, and how
// long that took; zero where that wasn't measured.
func (p *PLEG) StreamConnected(latency time.Duration) {
	p.connected.Inc()
	if latency > 0 {
		p.latency.Observe(latency.Seconds())
	}
}

// Event records how old an event was when it came in on the stream.
func (p *PLEG) Event(latency time.Duration) { p.latency.Observe(latency.Seconds()) }

// StreamError records that the event stream couldn't be opened or broke off.
func (p *PLEG) StreamError() { p.failed.Inc() }
