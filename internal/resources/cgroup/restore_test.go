package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/opencontainers/cgroups"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// The next agent's first pod takes nothing from those that it hasn't come to yet.
func TestQoSCgroupsKeepWhatAnEarlierAgentGaveThem(t *testing.T) {
	m := onHost(t)
	half := need{"500m", "", "", ""}
	ensure := func(m *Manager, uid string) {
		t.Helper()
		m.mustEnsure(t, makePod(uid, half), allocated.PodLimits(makePod(uid, half), nil))
	}
	ensure(m, "a")
	ensure(m, "b")
	later := newManager(t, m.conf)
	ensure(later, "a")
	later.burstableWeighs(t, 1024)
	ensure(later, "b")
	later.burstableWeighs(t, 1024)
	if err := later.Remove(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	later.burstableWeighs(t, 512)

	another := newManager(t, m.conf)
	ensure(another, "c")
	if err := another.Remove(t.Context(), "a"); err != nil { // which it never came to
		t.Fatal(err)
	}
	another.burstableWeighs(t, 512)
}

// TestRestoreOnV2 plays cgroup v2's files.
func TestRestoreOnV2(t *testing.T) {
	cgroups.TestMode = true
	defer func() { cgroups.TestMode = false }()
	dir := t.TempDir()
	l := hierarchies{Layout: tree.Layout{V2: true, Mounts: map[string]string{"cpu": dir, "memory": dir}}}
	for group, files := range map[string]map[string]string{
		"podg":            {"cpu.weight": "39\n", "memory.min": "100\n", "memory.low": "7\n"},
		"burstable/podb":  {"cpu.weight": "59\n", "memory.min": "7\n", "memory.low": "20\n"},
		"burstable/podm":  {"cpu.weight": "59\n", "memory.low": "max\n"},
		"burstable/podn":  {"cpu.weight": "nonsense\n"},
		"burstable/other": {"cpu.weight": "59\n"},
	} {
		for file, text := range files {
			path := filepath.Join(dir, "kubepods", group, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	milli := New(Config{}, logr.Discard()).rules(l).CPUMilli(59)
	for reserve, want := range map[bool]map[types.UID]sums{
		true:  {"g": {guaranteed: 100}, "b": {burstableCPU: milli, burstable: 20}, "m": {burstableCPU: milli}, "known": {burstable: 1}},
		false: {"b": {burstableCPU: milli}, "m": {burstableCPU: milli}, "known": {burstable: 1}},
	} {
		m := New(Config{ReserveMemory: reserve}, logr.Discard())
		m.requested["known"] = sums{burstable: 1}
		m.restore(l)
		if !maps.Equal(m.requested, want) {
			t.Errorf("memory reserved %v: recalled %v, want %v", reserve, m.requested, want)
		}
	}
	if milli < 400 || milli > 500 {
		t.Errorf("a weight of 59 is taken for %dm", milli)
	}
}
