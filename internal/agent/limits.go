package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/observed"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/storagelimit"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/emptydir"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
	"github.com/deckhand-node/deckhand/internal/volume/volumestats"
)

// statsPatience is how long the agent waits at its end for file systems that were asked how full they are.
const statsPatience = time.Second

// buildLimits makes what finds out which pods keep too much on disk, and how full claims are.
func (a *Agent) buildLimits() {
	a.limits = storagelimit.New(storagelimit.Config{
		Pods: a.limitedPods, Layers: layers{a.conn, a.observed}, Meter: a.diskMeter, Logs: a.cfg.Kubelet.PodLogsDir,
		Wake: func(uid types.UID) { a.pool.Wake(uid) }, Evictions: a.metrics.Evictions, Log: a.log.WithName("storagelimit"),
	})
	a.volumeStats = volumestats.New(volumestats.Config{Volumes: a.volumes.Instances, Took: func(d time.Duration) { a.metrics.Volumes.Measured(metrics.SourceStatfs, d) }})
	a.metrics.CollectVolumes(func() metrics.VolumeCounts {
		desired, actual := a.volumes.Totals()
		return metrics.VolumeCounts{Desired: desired, Actual: actual}
	})
	a.metrics.CollectVolumeStats(func() []metrics.VolumeStats {
		var list []metrics.VolumeStats
		for _, s := range a.volumeStats.Stats() {
			list = append(list, metrics.VolumeStats(s))
		}
		return list
	})
	a.metrics.CollectPodDisk(func() []metrics.PodDisk {
		var list []metrics.PodDisk
		for _, u := range a.limits.Kept() {
			list = append(list, metrics.PodDisk{Namespace: u.Namespace, Pod: u.Name, UID: string(u.UID), Bytes: u.Kept.Bytes, Inodes: u.Kept.Inodes})
		}
		return list
	})
}

// diskMeasured takes in how long it took to measure a folder.
func (a *Agent) diskMeasured(quota bool, took time.Duration) {
	source := metrics.SourceDu
	if quota {
		source = metrics.SourceQuota
	}
	a.metrics.Volumes.Measured(source, took)
}

// limitsModules come after what they measure.
func (a *Agent) limitsModules() []module {
	list := []module{{name: "volume statistics", run: func(ctx context.Context) error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsPatience)
		defer cancel()
		if err := a.volumeStats.Close(end); err != nil {
			a.log.Info("A file system doesn't answer", "err", err)
		}
		return nil
	}}}
	if ptr.Deref(a.cfg.Kubelet.LocalStorageCapacityIsolation, true) {
		list = append(list, module{name: "storage limits", run: a.limits.Run})
	}
	return list
}

// limitedPods lists the pods that could write to the disk now.
func (a *Agent) limitedPods() []storagelimit.Pod {
	mounted := map[types.UID][]volume.Instance{}
	for _, v := range a.volumes.Instances() {
		mounted[v.UID] = append(mounted[v.UID], v)
	}
	var list []storagelimit.Pod
	for _, d := range a.merger.Current().Pods {
		if uid := d.Pod.UID; a.hasContainers(uid) {
			list = append(list, storagelimit.Pod{Pod: grant.Apply(d.Pod, a.grants.Get(uid)), Volumes: mounted[uid]})
		}
	}
	return list
}

// layers asks the runtime what containers wrote to their root file systems. It isn't asked about those that have ended:
// by the CRI, statistics are of running containers.
type layers struct {
	conn     *cri.Conn
	observed *observed.Store
}

func (l layers) WritableLayer(ctx context.Context, uid types.UID) (map[string]usage.Usage, error) {
	o := l.observed.Get(uid)
	if o == nil {
		return nil, nil
	}
	written := map[string]usage.Usage{}
	var errs []error
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.State != pod.ContainerRunning {
			continue
		}
		stats, err := l.conn.ContainerStats(ctx, c.ID)
		if err != nil {
			errs = append(errs, fmt.Errorf("what container %s wrote to its root file system: %w", c.Name, err))
			continue
		}
		layer := stats.GetWritableLayer()
		written[c.Name] = usage.Usage{Bytes: int64(layer.GetUsedBytes().GetValue()), Inodes: int64(layer.GetInodesUsed().GetValue())}
	}
	return written, errors.Join(errs...)
}

// measured has what is in an emptyDir on disk counted by the file system, where that can do it: by a quota
// project, which the folder has to get before anything is in it. Only pods with users of their own can't change that.
type measured struct {
	*emptydir.Plugin
	meter *usage.Meter
	log   logr.Logger
}

func (m measured) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	made, err := m.Plugin.Mount(ctx, r)
	if err != nil || r.InUse || r.Spec.Volume.EmptyDir.Medium != "" || ptr.Deref(r.Pod.Spec.HostUsers, true) {
		return made, err
	}
	if _, err := m.meter.Assign(r.Dir); err != nil && !errors.Is(err, usage.ErrNotEmpty) {
		m.log.V(2).Info("What is in a volume will be counted by looking at each file", "volume", r.Dir, "err", err)
	}
	return made, nil
}

// Unmount forgets the project; the rest is as of any folder.
func (m measured) Unmount(_ context.Context, p volume.Place) error {
	m.meter.Forget(p.Dir)
	return nil
}
