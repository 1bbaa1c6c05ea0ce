package cgroup

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// TestAllPodsAreHeldToTheirShare: also one that changes from agent to agent, and once nobody enforces it any more.
func TestAllPodsAreHeldToTheirShare(t *testing.T) {
	m := onHostWith(t, Config{Pods: &Share{CPUMilli: 1500, Memory: 1 << 30, PIDs: 1000, HugePages: map[string]int64{"2MB": 0}}})
	l, _ := m.hierarchies()
	all := m.QoSCgroup(v1.PodQOSGuaranteed)
	p := makePod("g", exact)
	ensure := func(m *Manager) { t.Helper(); m.mustEnsure(t, p, allocated.Limits{CPUMilli: 500}) }
	another := func(share *Share) *Manager {
		return newManager(t, Config{Driver: m.Driver, CgroupRoot: m.conf.CgroupRoot, Pods: share})
	}
	ensure(m)
	m.reads(t, all, m.rules(l).share(*m.conf.Pods))
	smaller := another(&Share{CPUMilli: 500, Memory: 1 << 29, PIDs: 900})
	ensure(smaller)
	smaller.reads(t, all, smaller.rules(l).share(*smaller.conf.Pods))

	free := hog(t, filepath.Join(l.Mounts["memory"], m.container(t, p, "c")))
	tight := another(&Share{CPUMilli: 500, Memory: 16 * mi, PIDs: 900})
	ensure(tight) // what runs goes on
	if tight.enforced || !strings.Contains(tight.unenforced, "and may have 16777216") {
		t.Errorf("enforced: %v, for it says %q", tight.enforced, tight.unenforced)
	}
	smaller.reads(t, all, smaller.rules(l).share(*smaller.conf.Pods)[1:2])
	free()
	ensure(tight)
	tight.reads(t, all, tight.rules(l).share(*tight.conf.Pods))

	// A reload changes it at once, also for who waits for room.
	live := &Share{CPUMilli: 700, Memory: 1 << 28, PIDs: 800}
	if err := errors.Join(tight.EnforceReserved(t.Context()), tight.Limit(t.Context(), Config{Pods: live})); err != nil {
		t.Fatal(err)
	}
	tight.reads(t, all, tight.rules(l).share(*live))

	for range 2 {
		nobody := another(nil)
		ensure(nobody)
		nobody.reads(t, all, nobody.rules(l).share(Share{CPUMilli: 1000}))
		ensure(another(&Share{CPUMilli: 700, PIDs: 800})) // as is left when an agent that lifted the limits was killed after the first
	}
}

func TestShare(t *testing.T) {
	r := rules{HugePages: []string{"2MB", "1GB"}}
	for _, c := range []struct {
		share  Share
		v1, v2 string
	}{
		{
			Share{CPUMilli: 1000, Memory: 64 * mi, PIDs: 100, HugePages: map[string]int64{"2MB": 4 * mi}},
			"cpu.shares=1024 memory.limit_in_bytes=67108864 pids.max=100 hugetlb.2MB.limit_in_bytes=4194304 hugetlb.2MB.rsvd.limit_in_bytes=4194304? hugetlb.1GB.limit_in_bytes=-1? hugetlb.1GB.rsvd.limit_in_bytes=-1?",
			"cpu.weight=100 memory.max=67108864 pids.max=100 hugetlb.2MB.max=4194304 hugetlb.2MB.rsvd.max=4194304? hugetlb.1GB.max=max? hugetlb.1GB.rsvd.max=max?",
		},
		{
			Share{CPUMilli: 1000},
			"cpu.shares=1024 memory.limit_in_bytes=-1 pids.max=max? hugetlb.2MB.limit_in_bytes=-1? hugetlb.2MB.rsvd.limit_in_bytes=-1? hugetlb.1GB.limit_in_bytes=-1? hugetlb.1GB.rsvd.limit_in_bytes=-1?",
			"cpu.weight=100 memory.max=max pids.max=max? hugetlb.2MB.max=max? hugetlb.2MB.rsvd.max=max? hugetlb.1GB.max=max? hugetlb.1GB.rsvd.max=max?",
		},
	} {
		for v2, want := range map[bool]string{false: c.v1, true: c.v2} {
			r.V2 = v2
			if got := settingsText(r.share(c.share)); got != want {
				t.Errorf("%+v, v2 %v:\n got %s\nwant %s", c.share, v2, got, want)
			}
		}
	}
}

// TestNoPIDsController: where the number of processes can't be limited, pods start all the same.
func TestNoPIDsController(t *testing.T) {
	m := onHostWith(t, Config{Pods: &Share{CPUMilli: 1500, Memory: 1 << 30, PIDs: 1000}})
	l, err := m.hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	without := l
	without.Mounts = maps.Clone(l.Mounts)
	delete(without.Mounts, "pids")
	m.hierarchies = func() (hierarchies, error) { return without, nil }
	m.mustEnsure(t, makePod("g", exact), allocated.Limits{CPUMilli: 500})
	m.reads(t, m.QoSCgroup(v1.PodQOSGuaranteed), m.rules(l).share(*m.conf.Pods)[:2])
}

// TestReservedGroups: the host's own groups, which have to be there, are held to what is reserved for them.
func TestReservedGroups(t *testing.T) {
	host := onHostWith(t, Config{PIDsLimit: 1000}) // so that it is in the hierarchy of processes, too
	l, _ := host.hierarchies()
	p := makePod("g", exact)
	host.mustEnsure(t, p, allocated.Limits{}) // so that all around is there
	group := filepath.Dir(host.Group(p))
	reserving := func(r Reserved) error {
		r.Setting = "systemReservedCgroup"
		return newManager(t, Config{Driver: host.Driver, CgroupRoot: host.conf.CgroupRoot, Reserved: []Reserved{r}}).EnforceReserved(t.Context())
	}
	share := Share{CPUMilli: 250, Memory: 1 << 28}
	if err := reserving(Reserved{Name: group, Share: share}); err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, append(host.rules(l).share(Share{CPUMilli: 250})[:1], host.rules(l).memory(0)))
	if err := reserving(Reserved{Name: group, Share: Share{Memory: 1 << 29}, Incompressible: true}); err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, append(host.rules(l).share(Share{CPUMilli: 250})[:1], host.rules(l).memory(1<<29))) // no CPU is reserved: its weight stays
	if err := reserving(Reserved{Name: group, Share: share, Incompressible: true}); err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, host.rules(l).share(share))
	// A reload that reserves less, or nothing, has the group held to that, once the driver is known.
	held := func(s Share) Config {
		return Config{Driver: host.Driver, CgroupRoot: host.conf.CgroupRoot, Reserved: []Reserved{{Name: group, Share: s, Incompressible: true}}}
	}
	live := newManager(t, held(Share{Memory: 1 << 29}))
	early := make(chan error)
	go func() { early <- live.Limit(t.Context(), held(Share{Memory: 1 << 27, PIDs: 500})) }()
	live.UseDriver(host.Driver) // at the same time, as the runtime may answer then
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, host.rules(l).share(share)[:2])
	if err := live.EnforceReserved(t.Context()); err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, append(host.rules(l).share(Share{CPUMilli: 250, Memory: 1 << 27})[:2], rules{PIDs: 500}.pids()))
	if err := live.Limit(t.Context(), held(Share{})); err != nil {
		t.Fatal(err)
	}
	host.reads(t, group, append(host.rules(l).share(Share{CPUMilli: 250})[:2], rules{}.pids()))
	if err := live.Limit(t.Context(), held(share)); err != nil {
		t.Fatal(err)
	}
	err := reserving(Reserved{Name: group + "/none", Share: share})
	if err == nil || !strings.Contains(err.Error(), "systemReservedCgroup: control group ") || !strings.Contains(err.Error(), " doesn't exist: create it") {
		t.Errorf("a group that isn't there: %v", err)
	}
	defer hog(t, filepath.Join(l.Mounts["memory"], host.container(t, p, "c")))()
	if err := reserving(Reserved{Name: group, Share: Share{CPUMilli: 250, Memory: 16 * mi}, Incompressible: true}); err != nil {
		t.Errorf("a group that uses more: %v", err)
	}
	host.reads(t, group, host.rules(l).share(share))
}
