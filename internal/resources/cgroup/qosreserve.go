package cgroup

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// QOSReserve keeps a part of the memory that pods request from pods of lower QoS classes: what Guaranteed pods request
// from all others, and what Burstable pods request from BestEffort ones (Kubernetes design proposal
// "pod-resource-management", "QoS level cgroups").
type QOSReserve struct {
	// Percent is how much of it is kept, Memory what all pods may have together, in bytes.
	Percent, Memory int64
}

// limits are the bytes of memory that Burstable and BestEffort pods may use.
func (r *QOSReserve) limits(all sums) (burstable, bestEffort int64) {
	kept := func(requested int64) int64 { return int64(float64(requested) * float64(r.Percent) / 100) }
	burstable = max(r.Memory-kept(all.guaranteedMemory), leastMemory)
	return burstable, max(r.Memory-kept(all.guaranteedMemory+all.burstableMemory), leastMemory)
}

// leastMemory is the least limit there is, in bytes: 0 would be none.
const leastMemory = 4096

// limitQoS sets how much memory the QoS cgroups may use. One that uses more keeps the limit it had: that is tried again
// when what pods request changes next. After a restart of the agent requests are counted again as it comes to one pod
// after the other.
func (m *Manager) limitQoS(ctx context.Context, l layout, all sums) error {
	if m.conf.QOSReserve == nil {
		return nil
	}
	burstable, bestEffort := m.conf.QOSReserve.limits(all)
	for class, limit := range map[v1.PodQOSClass]int64{v1.PodQOSBurstable: burstable, v1.PodQOSBestEffort: bestEffort} {
		name := m.qosCgroup(class)
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

// liftQoSLimits lifts what an earlier agent limited.
func (m *Manager) liftQoSLimits(ctx context.Context, l layout) error {
	if m.conf.QOSReserve != nil {
		return nil
	}
	none := m.rules(l).memory(0)
	for _, class := range [...]v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if n := readNumber(l, m.qosCgroup(class), none); n == 0 || n > unlimited {
			continue
		}
		if err := m.maker.set(ctx, l, m.qosCgroup(class), []setting{none}); err != nil {
			return fmt.Errorf("lift the memory limit of the QoS cgroup of %s pods: %w", class, err)
		}
	}
	return nil
}
