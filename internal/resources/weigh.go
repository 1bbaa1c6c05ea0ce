package resources

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/resources/knob"
)

// sums is what a pod, or all of them, ask for that concerns the groups above them.
type sums struct {
	// burstableCPU is what Burstable pods request, in thousandths of a CPU; as
	// written it is the tier's CPU shares.
	burstableCPU int64
	// guaranteed and burstable are the bytes of memory that pods of the class have protected.
	guaranteed, burstable int64
}

// count has the groups above the pod match what it asks for.
func (m *Manager) count(ctx context.Context, l layout, uid types.UID, class v1.PodQOSClass, lim grant.Limits) error {
	var asks sums
	if class == v1.PodQOSBurstable {
		asks.burstableCPU = lim.CPUMilli
	}
	if m.conf.ReserveMemory && class == v1.PodQOSGuaranteed {
		asks.guaranteed = lim.MemoryRequest
	}
	if m.conf.ReserveMemory && class == v1.PodQOSBurstable {
		asks.burstable = lim.MemoryRequest
	}
	if asks == (sums{}) && class != v1.PodQOSBurstable {
		return nil
	}
	return m.weigh(ctx, l, func() { m.asked[uid] = asks })
}

// discount takes a removed pod out of what the groups above it have.
func (m *Manager) discount(ctx context.Context, l layout, uid types.UID) error {
	m.mu.Lock()
	_, counted := m.asked[uid]
	m.mu.Unlock()
	if !counted {
		return nil
	}
	err := m.weigh(ctx, l, func() { delete(m.asked, uid) })
	if errors.Is(err, unix.ENOENT) {
		return nil // the tier itself is gone
	}
	return err
}

// weigh changes what the tiers are made of, and sets what they have to match.
func (m *Manager) weigh(ctx context.Context, l layout, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	var all sums
	for _, a := range m.asked {
		all.burstableCPU += a.burstableCPU
		all.guaranteed += a.guaranteed
		all.burstable += a.burstable
	}
	all.burstableCPU = cpuunits.Shares(all.burstableCPU)
	if shares := all.burstableCPU; shares != m.written.burstableCPU {
		if err := m.maker.set(ctx, l, m.tier(v1.PodQOSBurstable), []knob.Setting{m.rules(l).Shares(shares)}); err != nil {
			return fmt.Errorf("weight of the Burstable tier: %w", err)
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

// protect has the groups above the pods protect so many bytes for pods of each class.
func (m *Manager) protect(ctx context.Context, l layout, guaranteed, burstable int64) error {
	pods, tier := m.rules(l).Protected(guaranteed, burstable)
	if err := errors.Join(m.maker.set(ctx, l, m.tier(v1.PodQOSGuaranteed), pods), m.maker.set(ctx, l, m.tier(v1.PodQOSBurstable), tier)); err != nil {
		return fmt.Errorf("memory protected for pods: %w", err)
	}
	return nil
}
