package metrics

// LogUse is the disk usage of a container's logs.
type LogUse struct {
	UID, Namespace, Pod, Container string
	Bytes                          int64
}

// CollectLogs registers the disk usage of containers' logs, which list returns at each scrape. It may be called
// once; list must not return a container twice.
func (m *Metrics) CollectLogs(list func() []LogUse) {
	collect(m.factory, list, gaugeVec("kubelet_container_log_filesystem_used_bytes",
		"Bytes used by the container's logs on the filesystem.",
		func(list []LogUse, add series) {
			for _, l := range list {
				add(float64(l.Bytes), l.UID, l.Namespace, l.Pod, l.Container)
			}
		}, "uid", "namespace", "pod", "container"))
}
