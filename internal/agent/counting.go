package agent

import (
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// collect registers the values that are counted when the metrics are scraped.
func collect(b *foundation, r *runtimeParts, d *desiredParts, i *imageParts, v *volumeParts, w *workerParts) {
	b.meter.Reloads.Loaded(b.began)
	b.meter.CollectPullRecords(i.allowed.Counts)
	b.meter.CgroupVersion(r.host.cgroups.Version)
	b.meter.CollectPods(func() metrics.PodCounts {
		return worker.CountPods(d.Merger.Current().Pods, r.seen.All(), b.statuses.List(), b.cfg.Standalone)
	})
	b.meter.CollectEvents(func() metrics.EventStats { return metrics.EventStats(b.recorder.Stats()) })
	b.meter.CollectJournal(w.diaries.Unwritten)
	b.meter.CollectLogs(func() []metrics.LogUse {
		var list []metrics.LogUse
		for _, e := range b.statuses.List() {
			for container, bytes := range r.logDirs.Used(
				layout.Pod{Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}) {
				list = append(list, metrics.LogUse{UID: string(e.Pod.UID), Namespace: e.Pod.Namespace, Pod: e.Pod.Name,
					Container: container, Bytes: bytes})
			}
		}
		return list
	})
	b.meter.CollectVolumes(func() metrics.VolumeCounts {
		desired, actual := v.volumes.Totals()
		return metrics.VolumeCounts{Desired: desired, Actual: actual}
	})
	b.meter.CollectVolumeStats(func() []metrics.VolumeStats {
		var list []metrics.VolumeStats
		for _, s := range v.stats.Stats() {
			list = append(list, metrics.VolumeStats(s))
		}
		return list
	})
	b.meter.CollectPodDisk(func() []metrics.PodDisk {
		var list []metrics.PodDisk
		for _, u := range v.limits.Uses() {
			list = append(list, metrics.PodDisk{Namespace: u.Namespace, Pod: u.Name, UID: string(u.UID),
				Bytes: u.Used.Bytes, Inodes: u.Used.Inodes})
		}
		return list
	})
}
