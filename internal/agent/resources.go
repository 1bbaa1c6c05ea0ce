package agent

import (
	"fmt"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/assign"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/worker/executor"
)

// resourceParts assign the node's resources and devices to pods.
type resourceParts struct {
	records     *checkpoint.Store
	assigned    *devices.Manager
	cpus        *assign.Manager
	allocations *allocation.Manager
}

func newResources(b *foundation, r *runtimeParts, d *desiredParts) (*resourceParts, error) {
	s := &resourceParts{records: checkpoint.New(b.checkpoint("pods"))}
	s.records.Observe(b.writes.Track)
	known := func(uid types.UID) bool {
		set := d.Merger.Current()
		return !set.Synced || set.Has(uid) || r.runs(uid)
	}
	s.assigned = devices.New(devices.Config{Dir: b.dirs.DevicePlugins(), BootID: bootID(), Wake: b.wakes.Wake,
		Meter: b.meter.Devices, Writes: b.writes, Log: b.log.WithName("devices"),
		Known: known})
	machine := func() (topology.Machine, error) { return topology.Read(os.DirFS("/")) }
	var policy assign.Policy
	if !b.o.StopAll { // pods have to end whatever the policy
		var err error
		if policy, err = assign.PolicyOf(b.cfg, machine); err != nil {
			return nil, err
		}
	}
	s.cpus = assign.New(assign.Config{Dir: b.cfg.RootDir, Policy: policy, Machine: podsMachine(machine, r.host.cgroups),
		Pod: s.podOf(d.Merger), Known: known, Observed: r.seen.All, Shared: r.host.shared, Ready: b.workersReady,
		Runtime: r.conn, Cgroups: r.host.cgroups, Meter: b.meter.CPUs, Events: b.node,
		Freed: func() { s.allocations.Freed() }, Writes: b.writes, Log: b.log.WithName("cpus")})
	assigners := []allocation.Assigner{s.assigned, s.cpus}
	if b.o.StopAll {
		assigners = assigners[:1] // no container needs to move before it ends
	}
	s.allocations = b.by.ledger(allocation.Config{
		Store: s.records, Allocatable: r.host.allocatable(), Wake: b.wakes.Wake, Meter: b.meter.Resources,
		Log: b.log.WithName("allocation"), Node: r.admission, Pods: b.wakes.admissible, Runs: r.runs, Lives: r.lives,
		Ended: func(uid types.UID) (bool, error) {
			return executor.Ended(s.records, uid)
		}, Left: r.host.cgroups.Orphans,
		Assigners: assigners,
		Patience:  map[pod.WaitFor]time.Duration{pod.WaitForPlugin: b.cfg.AwaitDevicePlugins},
	})
	return s, nil
}

// podsMachine returns a function that reads the machine, with the CPUs that pods may use: an administrator may have
// given them fewer than there are.
func podsMachine(read func() (topology.Machine, error), groups *cgroup.Manager) func() (topology.Machine, error) {
	return func() (topology.Machine, error) {
		m, err := read()
		if err != nil {
			return m, err
		}
		allowed, err := groups.PodsCPUs()
		if err != nil {
			return m, fmt.Errorf("find out which CPUs pods may use: %w", err)
		}
		if !allowed.IsEmpty() {
			m.CPUs = slices.DeleteFunc(m.CPUs, func(c topology.CPU) bool { return !allowed.Contains(c.ID) })
		}
		return m, nil
	}
}

// podOf returns a function that returns a pod that should run, with its allocated requests.
func (s *resourceParts) podOf(merger *desired.Merger) func(types.UID) *v1.Pod {
	return func(uid types.UID) *v1.Pod {
		d := merger.Current().Get(uid)
		if d == nil {
			return nil
		}
		return allocated.Apply(d.Pod, s.allocations.Get(uid))
	}
}
