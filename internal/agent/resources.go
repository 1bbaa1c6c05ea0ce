package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/worker/executor"
)

// resourceParts assign the node's resources and devices to pods.
type resourceParts struct {
	records     *checkpoint.Store
	assigned    *devices.Manager
	allocations *allocation.Manager
}

func newResources(b *foundation, r *runtimeParts, d *desiredParts) *resourceParts {
	s := &resourceParts{records: checkpoint.New(b.checkpoint("pods"))}
	s.records.Observe(b.writes.Track)
	s.assigned = devices.New(devices.Config{Dir: b.dirs.DevicePlugins(), BootID: bootID(), Wake: b.wakes.Wake,
		Meter: b.meter.Devices, Writes: b.writes, Log: b.log.WithName("devices"),
		Known: func(uid types.UID) bool {
			set := d.Merger.Current()
			return !set.Synced || set.Has(uid) || r.runs(uid)
		}})
	s.allocations = b.by.ledger(allocation.Config{
		Store: s.records, Allocatable: r.host.allocatable(), Wake: b.wakes.Wake, Meter: b.meter.Resources,
		Log: b.log.WithName("allocation"), Node: r.admission, Pods: b.wakes.admissible, Runs: r.runs, Lives: r.lives,
		Ended: func(uid types.UID) (bool, error) {
			return executor.Ended(s.records, uid)
		}, Left: r.host.cgroups.Orphans,
		Assigners: []allocation.Assigner{s.assigned},
		Patience:  map[pod.WaitFor]time.Duration{pod.WaitForPlugin: b.cfg.AwaitDevicePlugins},
	})
	return s
}
