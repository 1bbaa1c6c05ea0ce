package metrics

import "github.com/prometheus/client_golang/prometheus"

// LogUse is the disk usage of a container's logs.
type LogUse struct {
	UID, Namespace, Pod, Container string
	Bytes                          int64
}

// CollectLogs registers the disk usage of containers' logs, which list returns at each scrape. It may be called
// once; list must not return a container twice.
func (m *Metrics) CollectLogs(list func() []LogUse) {
	m.registry.MustRegister(&logCollector{list, prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
		"Bytes used by the container's logs on the filesystem.", []string{"uid", "namespace", "pod", "container"},
		nil)})
}

type logCollector struct {
	list func() []LogUse
	used *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *logCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.used }

// Collect implements prometheus.Collector.
func (c *logCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.list() {
		ch <- prometheus.MustNewConstMetric(c.used, prometheus.GaugeValue, float64(l.Bytes), l.UID, l.Namespace, l.Pod,
			l.Container)
	}
}
