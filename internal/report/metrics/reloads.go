package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ReloadResult is the result of a reload of the configuration.
type ReloadResult string

// The values of the label result.
const (
	// ReloadApplied: the new configuration is in force.
	ReloadApplied ReloadResult = "applied"
	// ReloadUnchanged: the configuration that was read is already in force.
	ReloadUnchanged ReloadResult = "unchanged"
	// ReloadRefused counts configurations with changes that take effect only after a restart of the agent.
	ReloadRefused ReloadResult = "refused"
	// ReloadInvalid: the configuration that was read is invalid.
	ReloadInvalid ReloadResult = "invalid"
)

// Reloads records reloads of the configuration.
type Reloads struct {
	total   *prometheus.CounterVec
	success prometheus.Gauge
	at      prometheus.Gauge
}

func newReloads(f factory) *Reloads {
	r := &Reloads{
		total: f.counterVec("deckhand_config_reloads_total",
			"Number of times the configuration was read again, by result: applied, unchanged, refused (it needs a "+
				"restart) or invalid.", "result"),
		success: f.gauge("deckhand_config_last_reload_success",
			"Whether the configuration, when it was last read, is the one in force: 0 after a reload that was "+
				"refused or invalid."),
		at: f.gauge("deckhand_config_last_reload_success_timestamp_seconds",
			"When the configuration was last read and is the one in force since, in seconds since 1970; the start of "+
				"the agent counts."),
	}
	r.success.Set(1)
	return r
}

// Loaded records that the configuration was read at the start of the agent. This isn't a reload, but counts as a
// success.
func (r *Reloads) Loaded(at time.Time) {
	r.success.Set(1)
	r.at.Set(float64(at.UnixMilli()) / 1e3)
}

// Reloaded records a reload that ended at this time.
func (r *Reloads) Reloaded(result ReloadResult, at time.Time) {
	r.total.WithLabelValues(string(result)).Inc()
	switch result {
	case ReloadApplied, ReloadUnchanged:
		r.Loaded(at)
	default:
		r.success.Set(0)
	}
}
