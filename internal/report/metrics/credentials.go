package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Credentials records the calls of credential provider plugins.
type Credentials struct {
	duration *prometheus.HistogramVec
	failed   *prometheus.CounterVec
}

func newCredentials(f factory) *Credentials {
	const label = "plugin_name"
	return &Credentials{
		duration: f.histogramVec("kubelet_credential_provider_plugin_duration",
			"Duration of execution in seconds for credential provider plugin", prometheus.DefBuckets, label),
		failed: f.counterVec("kubelet_credential_provider_plugin_errors_total",
			"Number of errors from credential provider plugin", label),
	}
}

// PluginCalled records a call of a plugin, which is named as in the configuration.
func (c *Credentials) PluginCalled(plugin string, took time.Duration, failed bool) {
	c.duration.WithLabelValues(plugin).Observe(took.Seconds())
	if failed {
		c.failed.WithLabelValues(plugin).Inc()
	}
}
