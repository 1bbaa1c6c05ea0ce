package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

func pidsMax(value string) []setting {
	return []setting{{Controller: "pids", File: "pids.max", Value: value}}
}

func atoi(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPodsAreLimitedInProcesses(t *testing.T) {
	m := onHostWith(t, Config{PIDsLimit: 50})
	if l, _ := m.hierarchies(); l.Mounts["pids"] == "" {
		t.Fatal("this host has no cgroup controller pids")
	}
	p := makePod("a", loose)
	m.mustEnsure(t, p, allocated.PodLimits(p, nil))
	m.reads(t, m.Group(p), pidsMax("50"))

	changed := m.conf
	changed.PIDsLimit = 1 << 40
	later := newManager(t, changed)
	later.mustEnsure(t, p, allocated.PodLimits(p, nil))
	most := later.kernel().maxPIDs
	if text, err := os.ReadFile("/proc/sys/kernel/pid_max"); err != nil || most <= 0 || most > atoi(t, string(text)) {
		t.Errorf("this node may have %d processes, and the kernel says %s (%v)", most, text, err)
	}
	later.reads(t, m.Group(p), pidsMax(strconv.FormatInt(most, 10)))

	changed.PIDsLimit = -1
	newManager(t, changed).mustEnsure(t, p, allocated.PodLimits(p, nil))
	m.reads(t, m.Group(p), pidsMax("max"))
}

func TestSupport(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	s, err := m.Support()
	if err != nil {
		t.Fatal(err)
	}
	if s.V2 != cgroups.IsCgroup2UnifiedMode() || s.PIDs != (l.Mounts["pids"] != "") || len(s.HugePages) > 0 && l.Mounts["hugetlb"] == "" {
		t.Errorf("got %+v", s)
	}
	p := makePod("a", exact)
	m.mustEnsure(t, p, allocated.PodLimits(p, nil))
	file := "memory.memsw.limit_in_bytes"
	if l.V2 {
		file = "memory.swap.max"
	}
	if there := exists(filepath.Join(l.Mounts["memory"], m.Group(p), file)); there != s.Swap {
		t.Errorf("swap can be bounded: %v, and a pod's group has %s: %v", s.Swap, file, there)
	}
}

func TestWarnings(t *testing.T) {
	const gi = 1 << 30
	v1Host, v2Host := Support{Swap: true, PIDs: true}, Support{V2: true, Swap: true, PIDs: true, HugePages: []string{"2MB"}}
	everything := Config{PIDsLimit: 100, Swap: gi, Memory: gi, ReserveMemory: true}
	swap := capacity.Node{Swap: gi, HugePages: map[v1.ResourceName]int64{"hugepages-2Mi": 0}}
	for _, c := range []struct {
		name     string
		conf     Config
		support  Support
		node     capacity.Node
		throttle bool
		want     []string // what the lines begin with
	}{
		{"nothing wanted", Config{}, Support{}, capacity.Node{}, false, nil},
		{"all of it can be done", everything, v2Host, swap, true, nil},
		{"cgroup v1", everything, v1Host, swap, true, []string{"memorySwap.swapBehavior LimitedSwap needs", "memoryReservationPolicy", "memoryThrottlingFactor has"}},
		{"a poor kernel", everything, Support{V2: true}, swap, false, []string{"podPidsLimit 100 has no effect", "memorySwap.swapBehavior LimitedSwap has no effect", "containers can't be kept off"}},
		{"too many processes", Config{PIDsLimit: 1001}, v2Host, capacity.Node{}, false, []string{"podPidsLimit 1001 is more than this node's 1000"}},
		{"swap on cgroup v1", Config{}, v1Host, swap, false, []string{"containers without a memory limit"}},
		{"huge pages", Config{}, v1Host, capacity.Node{HugePages: map[v1.ResourceName]int64{"hugepages-2Mi": gi, "hugepages-1Gi": 0}}, false, []string{"limits of hugepages-2Mi aren't enforced"}},
	} {
		m := New(c.conf, logr.Discard())
		m.kernel = func() kernel { return kernel{maxPIDs: 1000} }
		got := m.Warnings(c.support, c.node, c.throttle)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{"5.8.18": true, "4.19.0-26-amd64": true, "5.9.0": false, "5.10": false, "6.1.0-13": false, "6": false, "": false, "new.kernel": false} {
		if olderThan(release, 5, 9) != want {
			t.Errorf("%s older than 5.9: not %v", release, want)
		}
	}
}

func TestHugePagesOfPods(t *testing.T) {
	pages := func(p *v1.Pod, i int, size, amount string) *v1.Pod {
		p.Spec.Containers[i].Resources.Limits[v1.ResourceName("hugepages-"+size)] = resource.MustParse(amount)
		return p
	}
	if got := hugePages(makePod("a", exact, loose)); got != nil {
		t.Errorf("none asked: %v", got)
	}
	p := pages(pages(pages(makePod("a", nothing, nothing), 0, "2Mi", "4Mi"), 1, "2Mi", "6Mi"), 1, "1Gi", "1Gi")
	if got := hugePages(p); len(got) != 2 || got["2MB"] != 10*mi || got["1GB"] != 1<<30 {
		t.Errorf("the sum: %v", got)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"hugepages-2Mi": resource.MustParse("20Mi")}}
	if got := hugePages(p); len(got) != 2 || got["2MB"] != 20*mi || got["1GB"] != 1<<30 {
		t.Errorf("the pod's own come first: %v", got)
	}
}

// TestQoSCgroupsProtectWhatTheirPodsAskFor plays cgroup v2's files.
func TestQoSCgroupsProtectWhatTheirPodsAskFor(t *testing.T) {
	cgroups.TestMode = true
	defer func() { cgroups.TestMode = false }()
	dir := t.TempDir()
	l := hierarchies{Layout: tree.Layout{V2: true, Mounts: map[string]string{"cpu": dir, "memory": dir}}}
	m := New(Config{ReserveMemory: true}, logr.Discard())
	m.hierarchies, m.made = func() (hierarchies, error) { return l, nil }, true
	for _, group := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods/podg", "kubepods/burstable/podb", "kubepods/besteffort/pode"} {
		if err := os.MkdirAll(filepath.Join(dir, group), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(file, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, "kubepods", file)); string(got) != want {
			t.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
	}
	for _, group := range []string{"kubepods", "kubepods/burstable", "kubepods/podg", "kubepods/burstable/podb", "kubepods/besteffort/pode"} {
		for file, text := range map[string]string{"memory.current": "0\n", "memory.stat": "inactive_file 0\n", "cpu.weight": "", "cpu.max": "", "memory.max": "", "memory.min": "", "memory.low": ""} {
			if err := os.WriteFile(filepath.Join(dir, group, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for uid, n := range map[string]need{"g": exact, "b": loose, "e": nothing} {
		p := makePod(uid, n)
		if err := m.allow(t.Context(), l, p, allocated.PodLimits(p, nil)); err != nil {
			t.Fatal(err)
		}
	}
	reads("memory.min", strconv.Itoa(96*mi))
	reads("memory.low", strconv.Itoa(32*mi))
	reads("burstable/memory.low", strconv.Itoa(32*mi))
	reads("podg/memory.min", strconv.Itoa(64*mi))
	reads("burstable/podb/memory.low", strconv.Itoa(32*mi))
	reads("besteffort/pode/memory.low", "")
	if err := m.discount(t.Context(), l, "g"); err != nil {
		t.Fatal(err)
	}
	reads("memory.min", strconv.Itoa(32*mi))
	if err := m.protect(t.Context(), l, 0, 0); err != nil {
		t.Fatal(err)
	}
	reads("memory.min", "0")
	reads("burstable/memory.low", "0")
}

// TestMemoryIsReservedAndSwapSharedOnTheHost: on cgroup v1, which can't, the pods run all the same.
func TestMemoryIsReservedAndSwapSharedOnTheHost(t *testing.T) {
	m := onHostWith(t, Config{ReserveMemory: true, Swap: 4 << 30, Memory: 8 << 30})
	l, _ := m.hierarchies()
	pods := []*v1.Pod{makePod("g", exact), makePod("b", loose), makePod("e", nothing)}
	for _, p := range pods {
		lim := allocated.PodLimits(p, nil)
		m.mustEnsure(t, p, lim)
		m.reads(t, m.Group(p), m.podSettings(p, lim))
	}
	tiers := func(m *Manager, guaranteed, burstable int64) {
		t.Helper()
		top, tier := m.rules(l).Protected(guaranteed, burstable)
		if l.V2 != (len(top) > 0) {
			t.Errorf("protected on cgroup v2 (%v): %v", l.V2, top)
		}
		m.reads(t, m.QoSCgroup(v1.PodQOSGuaranteed), top)
		m.reads(t, m.QoSCgroup(v1.PodQOSBurstable), tier)
	}
	tiers(m, 64*mi, 32*mi)
	if err := m.Resize(t.Context(), pods[1], allocated.Limits{CPUMilli: 1, MemoryRequest: 48 * mi}); err != nil {
		t.Fatal(err)
	}
	tiers(m, 64*mi, 48*mi)
	if err := m.Remove(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	tiers(m, 0, 48*mi)
	without := m.conf
	without.ReserveMemory = false
	later := New(without, logr.Discard())
	later.mustEnsure(t, pods[1], allocated.PodLimits(pods[1], nil))
	tiers(later, 0, 0)
}
