package agent

import (
	"cmp"
	"path"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/plugins"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// volumeParts manage pods' volumes, and measure pods' use of disks and other resources.
type volumeParts struct {
	claims  *binder.Binder
	drivers *csi.Drivers
	volumes *manager.Manager
	stats   *usage.StatsReader
	limits  *storagelimits.Manager
	sampler *stats.Sampler
	// layers and disks measure writable layers and directories.
	layers *storagelimits.ContainerLayers
	disks  *usage.Meter
	// room follows disks that can't be written.
	room *room.Watch
}

func newVolumes(b *foundation, r *runtimeParts, d *desiredParts, i *imageParts,
	s *resourceParts) (*volumeParts, error) {
	k, log, v := b.kubelet(), b.log.WithName("volume"), &volumeParts{}
	var err error
	if v.room, err = newDiskWatch(b, r, i, v); err != nil {
		return nil, err
	}
	v.claims = binder.New(binder.Config{Dir: b.checkpoint("volumes"), NodeLabels: r.host.labels, Objects: d.objects,
		Recorder: b.recorder, Writes: b.writes}, b.log.WithName("claims"))
	if v.drivers, err = newDrivers(b, r); err != nil {
		return nil, err
	}
	attached, err := newAttached(b, r)
	if err != nil {
		return nil, err
	}
	disks := usage.New(usage.Config{Took: func(quota bool, took time.Duration) {
		b.meter.Volumes.Measured(measuredBy(quota), took)
	}})
	v.volumes = manager.New(manager.Config{
		RootDir: b.cfg.RootDir, Plugins: volumePlugins(volumeImages{i.images, b.meter.Volumes}, disks,
			r.host.allocatable, csi.NewPlugin(v.drivers, b.cfg.RootDir), log),
		Claims: v.claims, SubPaths: subpath.New(b.dirs.Pods()), ApplyFSGroup: filetree.Apply, Changed: b.wakes.volumes,
		Freed: b.wakes.claimsFreed, DiskFailed: v.room.Failed, Running: r.lives, ContainerRuns: r.containerLives,
		Pod: func(uid types.UID) *v1.Pod {
			if wanted := d.Merger.Current().Get(uid); wanted != nil {
				return allocated.Apply(wanted.Pod, s.allocations.Get(uid))
			}
			return nil
		},
		Recorder: b.recorder, Meter: b.meter.Volumes, ClusterDomain: k.ClusterDomain, Attached: attached,
	}, log)
	v.stats = usage.NewStatsReader(usage.StatsConfig{Volumes: v.volumes.Instances, Took: func(took time.Duration) {
		b.meter.Volumes.Measured(metrics.SourceStatfs, took)
	}})
	onDisk := storagelimits.Node{Desired: d.Merger, Observed: r.seen, Volumes: v.volumes, Allocations: s.allocations,
		Ended: b.statuses.Ended, InCluster: !b.cfg.Standalone}
	v.disks = disks
	v.layers = storagelimits.NewContainerLayers(
		storagelimits.ContainerLayersConfig{Observed: r.seen, Runtime: r.conn, LayerDir: r.engine.LayerDir,
			Meter: disks})
	v.limits = storagelimits.New(storagelimits.Config{Pods: onDisk.Pods, Layers: v.layers, Meter: disks,
		Logs: k.PodLogsDir, Wake: b.wakes.Wake, Evictions: b.meter.Evictions, Log: b.log.WithName("storagelimits")})
	v.sampler = stats.New(stats.Config{Node: b.cfg.NodeName, Started: b.began, Groups: r.host.cgroups.Tree,
		Observed: r.seen, Volumes: v.volumes, FileSystems: v.stats, Layers: v.layers, Meter: disks, Runtime: r.conn,
		VolumesEvery: k.VolumeStatsAggPeriod.Duration, RootDir: b.cfg.RootDir, Logs: k.PodLogsDir,
		Memory: r.host.capacity.Memory, Swap: r.host.capacity.Swap, SystemGroups: systemGroups(b.cfg),
		Log: b.log.WithName("stats")})
	return v, nil
}

// newDrivers returns the CSI drivers. With an API server, a driver is registered once the server has its entry.
func newDrivers(b *foundation, r *runtimeParts) (*csi.Drivers, error) {
	facts, err := r.host.facts.Writer("CSI drivers", nodefacts.CSIDrivers)
	if err != nil {
		return nil, err
	}
	c := csi.Config{NoController: !ptr.Deref(b.kubelet().EnableControllerAttachDetach, true),
		BootID: bootID(), Facts: facts, Changed: b.wakes.objectsChanged, Meter: b.meter.Volumes,
		Log: b.log.WithName("csi")}
	if b.joins() {
		c.Board = r.host.facts
	}
	return csi.NewDrivers(c), nil
}

// attachedVolumes implements manager.Attached by the node's facts.
type attachedVolumes struct {
	facts *nodefacts.Board
	inUse *nodefacts.Writer
}

// newAttached returns the attached volumes of the node; nil without an API server.
func newAttached(b *foundation, r *runtimeParts) (manager.Attached, error) {
	if !b.joins() {
		return nil, nil
	}
	w, err := r.host.facts.Writer("volumes", nodefacts.InUse)
	return attachedVolumes{r.host.facts, w}, err
}

func (a attachedVolumes) SetInUse(names []v1.UniqueVolumeName) {
	a.inUse.Set(func(f *nodefacts.Facts) { f.InUse = names })
}

func (a attachedVolumes) Reported() []v1.UniqueVolumeName { return a.facts.Now().ReportedInUse }

func (a attachedVolumes) Detached(name v1.UniqueVolumeName) bool {
	return a.facts.Now().Detached(name)
}

// volumePlugins returns the plugins in order of precedence; the last one accepts every remaining volume and refuses
// it with an error.
func volumePlugins(images volumeImages, meter *usage.Meter, allocatable func() v1.ResourceList, drivers csi.Plugin,
	log logr.Logger) []volume.Plugin {
	return []volume.Plugin{
		plugins.NewEmptyDir(plugins.Config{MemoryLimit: cgroup.MemoryLimit, Quotas: meter, Log: log}),
		objectfiles.NewConfigMap(),
		objectfiles.NewSecret(),
		objectfiles.NewDownwardAPI(allocatable),
		objectfiles.NewProjected(allocatable),
		plugins.HostPath{},
		plugins.LocalVolume{},
		plugins.NewImageVolume(images),
		drivers,
		plugins.Unsupported{},
	}
}

// systemGroups returns the control groups of the system containers by their names in statistics.
func systemGroups(cfg *config.Config) map[string]string {
	k, system := &cfg.Kubelet, map[string]string{}
	for name, group := range map[string]string{statsapi.SystemContainerKubelet: cmp.Or(k.KubeletCgroups, tree.Own()),
		statsapi.SystemContainerMisc: k.SystemCgroups, statsapi.SystemContainerRuntime: cfg.RuntimeCgroups} {
		if group != "" {
			system[name] = path.Join("/", group)
		}
	}
	return system
}

// measuredBy returns the name by which metrics identify the method of measuring a directory.
func measuredBy(quota bool) string {
	if quota {
		return metrics.SourceQuota
	}
	return metrics.SourceDu
}
