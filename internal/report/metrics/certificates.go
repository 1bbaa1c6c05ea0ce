package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates records the certificates that the cluster issues: the agent's client certificate for the API server,
// and the serving certificate of the HTTPS server.
type Certificates struct {
	Client, Serving *Certificate
}

// Certificate records the client certificate or the serving certificate.
type Certificate struct {
	// until is when the certificate expires, in Unix seconds; 0 if there is none.
	until atomic.Int64
	// lived and failed are nil if the kubelet has no such metric for this certificate.
	lived  prometheus.Histogram
	failed prometheus.Counter
}

func newCertificates(f factory) *Certificates {
	c := &Certificates{Client: &Certificate{}, Serving: &Certificate{}}
	for name, one := range map[string]*Certificate{"client": c.Client, "server": c.Serving} {
		f.gaugeFunc("kubelet_certificate_manager_"+name+"_ttl_seconds",
			"Seconds until the certificate expires that the cluster has issued for the "+name+
				", negative if it has; +Inf if there is none.", one.remaining)
	}
	c.Client.failed = f.counter("kubelet_certificate_manager_client_expiration_renew_errors",
		"Counter of certificate renewal errors.")
	const day = 24 * 60 * 60
	c.Serving.lived = f.histogram("kubelet_certificate_manager_server_rotation_seconds",
		"Histogram of the number of seconds the previous certificate lived before being rotated.",
		[]float64{60, 60 * 60, 4 * 60 * 60, 6 * 60 * 60, 12 * 60 * 60, day, 7 * day, 30 * day, 90 * day,
			180 * day, 365 * day, 4 * 365 * day})
	return c
}

func (c *Certificate) remaining() float64 {
	until := c.until.Load()
	if until == 0 {
		return math.Inf(1)
	}
	return time.Until(time.Unix(until, 0)).Seconds()
}

// Valid records when the certificate in use expires.
func (c *Certificate) Valid(until time.Time) { c.until.Store(until.Unix()) }

// Renewed records that a certificate of this age was replaced by a new one.
func (c *Certificate) Renewed(age time.Duration) {
	if c.lived != nil {
		c.lived.Observe(age.Seconds())
	}
}

// Failed records a failed attempt to renew the certificate.
func (c *Certificate) Failed() {
	if c.failed != nil {
		c.failed.Inc()
	}
}
