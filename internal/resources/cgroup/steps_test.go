//go:build !systemd

// These ask the kernel for groups, step by step. With systemd each of these steps is its own.

package cgroup

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

// TestAPodsStartTakesFewCalls: of the kernel's files, on a host that has pods already.
func TestAPodsStartTakesFewCalls(t *testing.T) {
	none := map[string]int64{}
	for _, size := range readKernel().pages {
		none[size] = 0
	}
	m := onHostWith(t, Config{PIDsLimit: 1000, Pods: &Share{CPUMilli: 1000, PIDs: 10000, HugePages: none}})
	first := makePod("first", loose)
	m.mustEnsure(t, first, allocated.PodLimits(first, nil))
	p := makePod("next", need{"100m", "200m", "32Mi", "64Mi"})
	calls := killtest.Calls(t, func() error { return m.Ensure(context.Background(), p, allocated.PodLimits(p, nil)) })
	t.Logf("%d calls", calls)
	if calls > 25 {
		t.Errorf("the group of a pod took %d system calls, and may take 25", calls)
	}
}

// TestKilledAtAnyStep: what an agent had begun when it was killed the next one completes, and takes away.
func TestKilledAtAnyStep(t *testing.T) {
	m := onHost(t)
	first, p := makePod("first", loose), makePod("p", need{"100m", "200m", "32Mi", "64Mi"})
	m.mustEnsure(t, first, allocated.PodLimits(first, nil))
	lim := allocated.PodLimits(p, nil)
	before := groupsOf(t, m)
	complete := func(t *testing.T, _ string, _ int) {
		next := newManager(t, m.conf)
		next.mustEnsure(t, first, allocated.PodLimits(first, nil))
		next.mustEnsure(t, p, lim)
		next.reads(t, next.Group(p), next.podSettings(p, lim))
		next.burstableWeighs(t, allocated.Shares(200))
	}
	gone := func(t *testing.T, _ string, _ int) {
		next := newManager(t, m.conf)
		if err := next.Remove(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		next.mustEnsure(t, first, allocated.PodLimits(first, nil))
		next.burstableWeighs(t, allocated.Shares(100))
		if after := groupsOf(t, m); !slices.Equal(after, before) {
			t.Errorf("the groups are %q, and were %q", after, before)
		}
	}
	begin := func(string) error { return New(m.conf, logr.Discard()).Ensure(context.Background(), p, lim) }
	made := func(t *testing.T, dir string) {
		if err := begin(dir); err != nil {
			t.Fatal(err)
		}
	}
	killtest.Run(t, killtest.Case{Name: "making it, and made", Child: begin, Check: func(t *testing.T, dir string, n int) { complete(t, dir, n); gone(t, dir, n) }})
	killtest.Run(t, killtest.Case{Name: "removing it", Fresh: made, Child: func(string) error { return New(m.conf, logr.Discard()).Remove(context.Background(), p.UID) }, Check: gone})
}

// TestPodsComeAndGo: 200 pods leave the groups as they were.
func TestPodsComeAndGo(t *testing.T) {
	m := onHost(t)
	first := makePod("first", loose)
	m.mustEnsure(t, first, allocated.PodLimits(first, nil))
	before := groupsOf(t, m)
	var pods []*v1.Pod
	for i := range 200 {
		p := makePod(fmt.Sprint(i), []need{exact, loose, nothing}[i%3])
		pods = append(pods, p)
		m.mustEnsure(t, p, allocated.PodLimits(p, nil))
	}
	for _, p := range pods {
		if err := m.Remove(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if after := groupsOf(t, m); !slices.Equal(after, before) {
		t.Errorf("the groups are %q, and were %q", after, before)
	}
	m.burstableWeighs(t, allocated.Shares(100))
}

// groupsOf lists the groups in the manager's.
func groupsOf(t *testing.T, m *Manager) []string {
	t.Helper()
	l, err := m.hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, mount := range l.All {
		groups, err := groupsBelow(filepath.Join(mount, path.Dir(m.PodsGroup())))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, groups...)
	}
	return all
}
