package cgroup

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// sums are the requests, of one pod or of all pods, on which the values of the QoS cgroups depend.
type sums struct {
	// burstableCPU is the CPU request of Burstable pods, in thousandths of a CPU; in Manager.written it is the QoS
	// cgroup's CPU shares.
	burstableCPU int64
	// guaranteed and burstable are the bytes of memory to protect from reclaim for pods of the class.
	guaranteed, burstable int64
	// guaranteedMemory and burstableMemory are the bytes of memory that pods of the class request, for QOSReserve.
	guaranteedMemory, burstableMemory int64
}

// count adds the pod's requests to those of the QoS cgroups.
func (m *Manager) count(ctx context.Context, l hierarchies, uid types.UID, class v1.PodQOSClass,
	lim allocated.Limits) error {
	var request sums
	if class == v1.PodQOSBurstable {
		request.burstableCPU = lim.CPUMilli
	}
	if m.conf.ReserveMemory && class == v1.PodQOSGuaranteed {
		request.guaranteed = lim.MemoryRequest
	}
	if m.conf.ReserveMemory && class == v1.PodQOSBurstable {
		request.burstable = lim.MemoryRequest
	}
	switch {
	case m.conf.QOSReserve == nil:
	case class == v1.PodQOSGuaranteed:
		request.guaranteedMemory = lim.MemoryRequest
	case class == v1.PodQOSBurstable:
		request.burstableMemory = lim.MemoryRequest
	}
	if request == (sums{}) && class != v1.PodQOSBurstable {
		return nil
	}
	return m.updateQoS(ctx, l, func() { m.requested[uid] = request })
}

// discount subtracts a removed pod's requests from the QoS cgroups.
func (m *Manager) discount(ctx context.Context, l hierarchies, uid types.UID) error {
	m.mu.Lock()
	_, counted := m.requested[uid]
	m.mu.Unlock()
	if !counted {
		return nil
	}
	err := m.updateQoS(ctx, l, func() { delete(m.requested, uid) })
	if errors.Is(err, unix.ENOENT) {
		return nil // the QoS cgroup itself is gone
	}
	return err
}

// updateQoS changes the pods' requests, and updates the QoS cgroups to match.
func (m *Manager) updateQoS(ctx context.Context, l hierarchies, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	var all sums
	for _, a := range m.requested {
		all.burstableCPU += a.burstableCPU
		all.guaranteed += a.guaranteed
		all.burstable += a.burstable
		all.guaranteedMemory += a.guaranteedMemory
		all.burstableMemory += a.burstableMemory
	}
	if err := m.limitQoS(ctx, l, all); err != nil {
		return err
	}
	// limitQoS has its own record of written values, and retries on the next change.
	all.guaranteedMemory, all.burstableMemory = 0, 0
	all.burstableCPU = allocated.Shares(all.burstableCPU)
	if shares := all.burstableCPU; shares != m.written.burstableCPU {
		if err := m.maker.set(ctx, l, m.QoSCgroup(v1.PodQOSBurstable),
			[]setting{m.rules(l).Shares(shares)}); err != nil {
			return fmt.Errorf("weight of the Burstable QoS cgroup: %w", err)
		}
		m.written.burstableCPU = shares
	}
	if all == m.written {
		return nil
	}
	if err := m.protect(ctx, l, all.guaranteed, all.burstable); err != nil {
		return err
	}
	m.written = all
	return nil
}

// protect sets how many bytes of memory the QoS cgroups protect for pods of each class.
func (m *Manager) protect(ctx context.Context, l hierarchies, guaranteed, burstable int64) error {
	root, qos := m.rules(l).Protected(guaranteed, burstable)
	if err := errors.Join(m.maker.set(ctx, l, m.QoSCgroup(v1.PodQOSGuaranteed), root),
		m.maker.set(ctx, l, m.QoSCgroup(v1.PodQOSBurstable), qos)); err != nil {
		return fmt.Errorf("memory protected for pods: %w", err)
	}
	return nil
}
