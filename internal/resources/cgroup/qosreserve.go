package cgroup

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// QOSReserve reserves memory for pods by QoS class: Burstable and BestEffort pods can't use the reserved part of the
// memory that Guaranteed pods request, and BestEffort pods can't use the reserved part of the memory that Burstable
// pods request (Kubernetes design proposal "pod-resource-management", "QoS level cgroups").
type QOSReserve struct {
	// Percent is the reserved part of requests. Memory is the limit of all pods together, in bytes.
	Percent, Memory int64
}

// limits returns how many bytes of memory Burstable and BestEffort pods may use.
func (r *QOSReserve) limits(all sums) (burstable, bestEffort int64) {
	reserved := func(requested int64) int64 { return int64(float64(requested) * float64(r.Percent) / 100) }
	burstable = max(r.Memory-reserved(all.guaranteedMemory), leastMemory)
	return burstable, max(r.Memory-reserved(all.guaranteedMemory+all.burstableMemory), leastMemory)
}

// leastMemory is the smallest memory limit, in bytes: 0 would mean no limit.
const leastMemory = 4096

// limitQoS sets the memory limits of the QoS cgroups. A group that uses more keeps its previous limit until the next
// change of requests. After a restart of the agent, requests are counted again as the pods are synced.
func (m *Manager) limitQoS(ctx context.Context, l hierarchies, all sums) error {
	if m.conf.QOSReserve == nil {
		return nil
	}
	burstable, bestEffort := m.conf.QOSReserve.limits(all)
	for class, limit := range map[v1.PodQOSClass]int64{v1.PodQOSBurstable: burstable, v1.PodQOSBestEffort: bestEffort} {
		name := m.QoSCgroup(class)
		if m.limits[name] == limit {
			continue
		}
		err := l.usesMore(name, limit)
		if err == nil {
			err = m.maker.set(ctx, l, name, []setting{m.rules(l).memory(limit)})
		}
		switch {
		case err == nil:
			m.limits[name] = limit
		case errors.Is(err, unix.EBUSY):
			m.log.V(2).Info("Memory that pods request isn't kept from those of a lower QoS class yet: these use it",
				"cgroup", name, "err", err.Error())
		default:
			return fmt.Errorf("memory of the QoS cgroup of %s pods: %w", class, err)
		}
	}
	return nil
}

// liftQoSLimits removes the QoS cgroups' memory limits that an earlier agent set, unless limits are still configured.
func (m *Manager) liftQoSLimits(ctx context.Context, l hierarchies) error {
	if m.conf.QOSReserve != nil {
		return nil
	}
	none := m.rules(l).memory(0)
	for _, class := range [...]v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if n := readNumber(l, m.QoSCgroup(class), none); n == 0 || n > counters.LeastUnlimited {
			continue
		}
		if err := m.maker.set(ctx, l, m.QoSCgroup(class), []setting{none}); err != nil {
			return fmt.Errorf("lift the memory limit of the QoS cgroup of %s pods: %w", class, err)
		}
	}
	return nil
}
