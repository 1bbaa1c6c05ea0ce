package metrics

import "github.com/prometheus/client_golang/prometheus"

// PodDisk is a pod's usage of the node's disk.
type PodDisk struct {
	Namespace, Pod, UID string
	Bytes, Inodes       int64
}

// CollectPodDisk registers the disk usage of pods, which list returns at each scrape. It may be called once; list
// must not block, nor return a UID twice.
func (m *Metrics) CollectPodDisk(list func() []PodDisk) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"namespace", "pod", "uid"}, nil)
	}
	m.registry.MustRegister(&podDiskCollector{
		list: list,
		bytes: desc("deckhand_pod_disk_used_bytes",
			"Disk usage of a pod when it was last compared with its limits, if it has limits."),
		inodes: desc("deckhand_pod_disk_used_inodes",
			"Number of files, directories and other inodes of a pod when it was last compared with its limits, if it "+
				"has limits."),
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
