package metrics

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
	gauge := func(name, help string, value func(*VolumeStats) uint64) computed[[]VolumeStats] {
		return gaugeVec(name, help, func(list []VolumeStats, add series) {
			for i := range list {
				add(float64(value(&list[i])), list[i].Namespace, list[i].Claim)
			}
		}, "namespace", "persistentvolumeclaim")
	}
	collect(m.factory, stats,
		gauge("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume",
			func(s *VolumeStats) uint64 { return s.Capacity }),
		gauge("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume",
			func(s *VolumeStats) uint64 { return s.Available }),
		gauge("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume",
			func(s *VolumeStats) uint64 { return s.Used }),
		gauge("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume",
			func(s *VolumeStats) uint64 { return s.Inodes }),
		gauge("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume",
			func(s *VolumeStats) uint64 { return s.InodesFree }),
		gauge("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume",
			func(s *VolumeStats) uint64 { return s.InodesUsed }),
	)
}
