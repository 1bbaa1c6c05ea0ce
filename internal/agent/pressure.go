package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/host/alarm"
	"github.com/deckhand-node/deckhand/internal/host/clock"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/runtime/containergc"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// pressureParts evict pods when the node runs short of a resource.
type pressureParts struct {
	*pressure.Manager
	alarm *alarm.Alarm
	ready <-chan struct{}
}

func newPressure(b *foundation, r *runtimeParts, d *desiredParts, s *resourceParts, v *volumeParts,
	checkpoint func(types.UID) *pod.Checkpoint,
	reclaim func(context.Context, pressure.Reclaim) error) (*pressureParts, error) {
	settings, err := pressure.SettingsOf(b.kubelet())
	if err != nil {
		return nil, err
	}
	facts, err := r.host.facts.Writer("node pressure", nodefacts.Pressure)
	if err != nil {
		return nil, err
	}
	bell, log := alarm.New(), b.log.WithName("pressure")
	sensors := pressure.NewSensors(pressure.SensorsConfig{Groups: r.host.cgroups.Tree,
		FileSystems: v.sampler.MeasureFileSystems, Alarm: bell, Now: clock.SinceBoot, Log: log})
	pods := pressure.NewNodePods(pressure.NodePodsConfig{Desired: d.Merger, Observed: r.seen,
		Allocations: s.allocations, Volumes: v.volumes, Layers: v.layers, Meter: v.disks, Logs: b.kubelet().PodLogsDir,
		Standalone: b.cfg.Standalone,
		Ends: func(uid types.UID) bool {
			return v.limits.Termination(uid) != nil || s.allocations.Termination(uid) != nil || b.statuses.Ended(uid)
		},
		Sample: func(ctx context.Context, processes bool) (*stats.Sample, error) {
			if processes {
				return v.sampler.Sample(ctx, stats.Detailed, 0)
			}
			return v.sampler.Sample(ctx, stats.CPUAndMemory, 0)
		}})
	m := pressure.New(pressure.Config{Settings: settings, Observe: sensors.Observe,
		Processes: sensors.Processes, Alarm: bell, Pods: pods.Pods,
		Holding: pods.Holding, Version: pods.Version,
		Recorded: func(uid types.UID) bool { k := checkpoint(uid); return k != nil && k.Termination != nil },
		Reclaim:  reclaim, Full: b.wakes.full, Events: b.node, Meter: b.meter.Evictions, Wake: b.wakes.Wake,
		Publish: func(p admission.Pressure) { facts.Set(func(f *nodefacts.Facts) { f.Pressure = p }) },
		State:   b.checkpoint("pressure_state"), Boot: bootID(), Reserve: b.reserve, Now: clock.SinceBoot,
		Log: log})
	return &pressureParts{m, bell, b.workersReady}, nil
}

// thrashing describes a host that mostly swaps.
func thrashing() string { return pressure.Thrashing("/") }

// newDiskWatch returns the part that follows disks that can't be written. It uses the other parts of v only once it
// runs.
func newDiskWatch(b *foundation, r *runtimeParts, i *imageParts, v *volumeParts) (*room.Watch, error) {
	facts, err := r.host.facts.Writer("disks", nodefacts.StorageFailed)
	if err != nil {
		return nil, err
	}
	return room.NewWatch(room.WatchConfig{Root: b.cfg.RootDir,
		Full:   func(ctx context.Context) []room.FileSystem { return v.sampler.FullFileSystems(ctx) },
		Events: b.node, Writes: b.writes,
		Filled: b.wakes.full.Wake,
		Freed: func() {
			i.puller.DiskFreed()
			v.volumes.DiskFreed()
			b.wakes.diskFreed() // the last call: it wakes the workers, which query the others at once
		},
		Broken: func(err error) {
			facts.Set(func(f *nodefacts.Facts) {
				if f.StorageFailed = ""; err != nil {
					f.StorageFailed = err.Error()
				}
			})
		},
		Log: b.log.WithName("disks")}), nil
}

// reclaimIn is the timeout for the removal of dead containers or unused images.
const reclaimIn = 30 * time.Second

// reclaiming returns the function that removes dead containers and unused images, and returns once their space is free.
func reclaiming(dead *containergc.Keeper, layers engine.Engine,
	images *gc.Collector) func(context.Context, pressure.Reclaim) error {
	return func(ctx context.Context, what pressure.Reclaim) error {
		// No pod is evicted meanwhile, also none for memory.
		ctx, cancel := context.WithTimeout(ctx, reclaimIn)
		defer cancel()
		if what == pressure.DeadContainers {
			if err := dead.FreeNow(ctx); err != nil {
				return err
			}
			return layers.FreeLayers(ctx)
		}
		_, err := images.FreeNow(ctx)
		return err
	}
}

// alarms returns the module that waits for the kernel's alarms. Its start restores the conditions of node pressure, so
// it starts before the first report about the node.
func (p *pressureParts) alarms(log logr.Logger) modules.Module {
	return modules.Module{Name: "memory alarm", Run: p.alarm.Run, Start: orLogged(p.Restore, log,
		"Conditions of node pressure, and the time below thresholds, count from now")}
}

// evictions returns the module that decides about evictions. It waits until all pods are listed: before that, the node
// would seem to have no pods.
func (p *pressureParts) evictions() modules.Module {
	return modules.Module{Name: "node pressure", Run: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-p.ready:
			return p.Run(ctx)
		}
	}}
}
