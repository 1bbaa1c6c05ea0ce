package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Checks records the results of health checks, as service level indicators (KEP-3466).
type Checks struct {
	well  *prometheus.GaugeVec
	total *prometheus.CounterVec
}

func newChecks() *Checks {
	return &Checks{
		well: prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "kubernetes", Name: "healthcheck",
			Help: "This metric records the result of a single healthcheck."}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubernetes", Name: "healthchecks_total",
			Help: "This metric records the results of all healthcheck."}, []string{"name", "status", "type"}),
	}
}

// Checked records one run of a health check of /healthz.
func (c *Checks) Checked(name string, err error) {
	const kind = "healthz"
	status, well := "success", 1.0
	if err != nil {
		status, well = "error", 0
	}
	c.well.WithLabelValues(name, kind).Set(well)
	c.total.WithLabelValues(name, status, kind).Inc()
}

// Handler serves only these metrics, like the kubelet's /metrics/slis.
func (c *Checks) Handler() http.Handler { return HandlerOf(c.well, c.total) }
