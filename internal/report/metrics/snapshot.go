package metrics

import "github.com/prometheus/client_golang/prometheus"

// snapshot collects numbers that another package counts. All are read at once at a scrape, so they are consistent.
type snapshot struct {
	kind  prometheus.ValueType
	read  func() []float64
	descs []*prometheus.Desc
}

// newSnapshot makes a collector; read returns one number for each of descs, in their order.
func newSnapshot(kind prometheus.ValueType, read func() []float64, descs ...*prometheus.Desc) *snapshot {
	return &snapshot{kind: kind, read: read, descs: descs}
}

// desc describes a metric without labels.
func desc(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe implements prometheus.Collector.
func (s *snapshot) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *snapshot) Collect(ch chan<- prometheus.Metric) {
	for i, value := range s.read() {
		ch <- prometheus.MustNewConstMetric(s.descs[i], s.kind, value)
	}
}
