package metrics

// PodDisk is a pod's usage of the node's disk.
type PodDisk struct {
	Namespace, Pod, UID string
	Bytes, Inodes       int64
}

// CollectPodDisk registers the disk usage of pods, which list returns at each scrape. It may be called once; list
// must not block, nor return a UID twice.
func (m *Metrics) CollectPodDisk(list func() []PodDisk) {
	gauge := func(name, help string, value func(PodDisk) int64) computed[[]PodDisk] {
		return gaugeVec(name, help, func(list []PodDisk, add series) {
			for _, p := range list {
				add(float64(value(p)), p.Namespace, p.Pod, p.UID)
			}
		}, "namespace", "pod", "uid")
	}
	collect(m.factory, list,
		gauge("deckhand_pod_disk_used_bytes",
			"Disk usage of a pod when it was last compared with its limits, if it has limits.",
			func(p PodDisk) int64 { return p.Bytes }),
		gauge("deckhand_pod_disk_used_inodes",
			"Number of files, directories and other inodes of a pod when it was last compared with its limits, if it "+
				"has limits.", func(p PodDisk) int64 { return p.Inodes }),
	)
}
