package metrics

import "github.com/prometheus/client_golang/prometheus"

// PodDisk is what a pod uses on the node's disk. A UID has one at most.
type PodDisk struct {
	Namespace, Pod, UID string
	Bytes, Inodes       int64
}

// CollectPodDisk has list called at each scrape for what pods use on disk. It is to be called at most
// once, and list must not block.
func (m *Metrics) CollectPodDisk(list func() []PodDisk) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"namespace", "pod", "uid"}, nil)
	}
	m.registry.MustRegister(&podDiskCollector{
		list: list,
		bytes: desc("deckhand_pod_disk_used_bytes",
			"What a pod kept on disk when it was last held against its limits, as far as it has any."),
		inodes: desc("deckhand_pod_disk_used_inodes",
			"Number of files, directories and others that a pod kept on disk when it was last held against its "+
				"limits, as far as it has any."),
	})
}

type podDiskCollector struct {
	list          func() []PodDisk
	bytes, inodes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *podDiskCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.bytes
	ch <- c.inodes
}

// Collect implements prometheus.Collector.
func (c *podDiskCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.list() {
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(p.Bytes), p.Namespace, p.Pod, p.UID)
		ch <- prometheus.MustNewConstMetric(c.inodes, prometheus.GaugeValue, float64(p.Inodes), p.Namespace, p.Pod,
			p.UID)
	}
}
