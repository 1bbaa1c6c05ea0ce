package cgroup

import (
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// TestMemoryIsKeptFromLowerClasses: as pods come, are resized and go, and until nobody wants it any more.
func TestMemoryIsKeptFromLowerClasses(t *testing.T) {
	const total = 1 << 30
	m := onHostWith(t, Config{QOSReserve: &QOSReserve{Percent: 50, Memory: total}})
	l, _ := m.hierarchies()
	limits := func(m *Manager, burstable, bestEffort int64) {
		t.Helper()
		m.reads(t, m.QoSCgroup(v1.PodQOSBurstable), []setting{m.rules(l).memory(burstable)})
		m.reads(t, m.QoSCgroup(v1.PodQOSBestEffort), []setting{m.rules(l).memory(bestEffort)})
	}
	g, b, e := makePod("g", exact), makePod("b", loose), makePod("e", nothing)
	m.mustEnsure(t, g, allocated.Limits{CPUMilli: 500, MemoryRequest: 200 * mi, MemoryLimit: 200 * mi})
	limits(m, total-100*mi, total-100*mi)
	m.mustEnsure(t, b, allocated.Limits{MemoryRequest: 100 * mi})
	limits(m, total-100*mi, total-150*mi)
	m.mustEnsure(t, b, allocated.Limits{MemoryRequest: 60 * mi})
	limits(m, total-100*mi, total-130*mi)
	if err := m.Remove(t.Context(), g.UID); err != nil {
		t.Fatal(err)
	}
	limits(m, total, total-30*mi)

	// What best-effort pods use already they keep, and so does the limit of before; everybody's pods start all the same.
	m.mustEnsure(t, e, allocated.Limits{})
	free := hog(t, filepath.Join(l.Mounts["memory"], m.container(t, e, "c")))
	m.mustEnsure(t, g, allocated.Limits{CPUMilli: 500, MemoryRequest: 2*total - 64*mi})
	limits(m, 32*mi, total-30*mi)
	free()
	m.mustEnsure(t, b, allocated.Limits{MemoryRequest: 40 * mi})
	limits(m, 32*mi, 12*mi)
	if burstable, bestEffort := (&QOSReserve{Percent: 100, Memory: total}).limits(sums{guaranteedMemory: total, burstableMemory: total}); burstable <= 0 || bestEffort <= 0 {
		t.Errorf("with nothing left, there are limits of %d and %d, of which 0 is none", burstable, bestEffort)
	}

	another := newManager(t, Config{Driver: m.Driver, CgroupRoot: m.conf.CgroupRoot})
	another.mustEnsure(t, b, allocated.Limits{})
	limits(another, 0, 0)
}
