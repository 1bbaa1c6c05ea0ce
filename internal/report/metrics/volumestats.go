package metrics

import "github.com/prometheus/client_golang/prometheus"

// VolumeStats is the usage of the file system of a mounted claim.
type VolumeStats struct {
	Namespace, Claim string
	// These three are in bytes.
	Capacity, Available, Used      uint64
	Inodes, InodesFree, InodesUsed uint64
}

// CollectVolumeStats registers the usage of mounted claims, which stats returns at each scrape. It may be called
// once; stats must not block for long, nor return a claim twice.
func (m *Metrics) CollectVolumeStats(stats func() []VolumeStats) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("", subsystem, name), help,
			[]string{"namespace", "persistentvolumeclaim"}, nil)
	}
	m.registry.MustRegister(&volumeStatsCollector{
		stats: stats,
		values: []volumeValue{
			{desc("volume_stats_capacity_bytes", "Capacity in bytes of the volume"), func(s *VolumeStats) uint64 {
				return s.Capacity
			}},
			{desc("volume_stats_available_bytes", "Number of available bytes in the volume"),
				func(s *VolumeStats) uint64 { return s.Available }},
			{desc("volume_stats_used_bytes", "Number of used bytes in the volume"), func(s *VolumeStats) uint64 {
				return s.Used
			}},
			{desc("volume_stats_inodes", "Maximum number of inodes in the volume"), func(s *VolumeStats) uint64 {
				return s.Inodes
			}},
			{desc("volume_stats_inodes_free", "Number of free inodes in the volume"), func(s *VolumeStats) uint64 {
				return s.InodesFree
			}},
			{desc("volume_stats_inodes_used", "Number of used inodes in the volume"), func(s *VolumeStats) uint64 {
				return s.InodesUsed
			}},
		},
	})
}

type volumeStatsCollector struct {
	stats  func() []VolumeStats
	values []volumeValue
}

type volumeValue struct {
	desc *prometheus.Desc
	of   func(*VolumeStats) uint64
}

// Describe implements prometheus.Collector.
func (c *volumeStatsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.values {
		ch <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (c *volumeStatsCollector) Collect(ch chan<- prometheus.Metric) {
	list := c.stats()
	for i := range list {
		for _, v := range c.values {
			ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, float64(v.of(&list[i])),
				list[i].Namespace, list[i].Claim)
		}
	}
}
