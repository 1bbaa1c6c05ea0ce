package cgroup

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
)

const gi = 1 << 30

// settingsText writes settings as FILE=VALUE, those that may be missing with a "?".
func settingsText(settings []setting) string {
	var out []string
	for _, s := range settings {
		text := s.File + "=" + s.Value
		if s.Optional {
			text += "?"
		}
		if controller, _, _ := strings.Cut(s.File, "."); controller != s.Controller {
			text = s.Controller + ":" + text
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestPod(t *testing.T) {
	some := allocated.Limits{CPUMilli: 500, CPULimitMilli: 1000, MemoryLimit: 64 * mi, MemoryRequest: 32 * mi, SwapRequest: 32 * mi}
	for _, c := range []struct {
		name   string
		rules  rules
		class  v1.PodQOSClass
		limits allocated.Limits
		pages  map[string]int64
		v1, v2 string
	}{
		{
			"nothing asked", rules{}, v1.PodQOSBestEffort, allocated.Limits{}, nil,
			"cpu.shares=2 cpu.cfs_quota_us=-1? memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=max 100000? memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"everything", rules{PIDs: 100, Swap: 4 * gi, Memory: 8 * gi, ReserveMemory: true}, v1.PodQOSBurstable, some, nil,
			"cpu.shares=512 cpu.cfs_period_us=100000 cpu.cfs_quota_us=100000 memory.limit_in_bytes=67108864 pids.max=100",
			"cpu.weight=59 cpu.max=100000 100000 memory.max=67108864 pids.max=100 memory.swap.max=16777216? memory.low=33554432",
		},
		{
			"guaranteed: no swap, firm protection", rules{Swap: 4 * gi, Memory: 8 * gi, ReserveMemory: true}, v1.PodQOSGuaranteed, some, nil,
			"cpu.shares=512 cpu.cfs_period_us=100000 cpu.cfs_quota_us=100000 memory.limit_in_bytes=67108864 pids.max=max?",
			"cpu.weight=59 cpu.max=100000 100000 memory.max=67108864 pids.max=max? memory.swap.max=0? memory.min=33554432",
		},
		{
			"best effort: no protection", rules{Swap: 4 * gi, Memory: 8 * gi, ReserveMemory: true}, v1.PodQOSBestEffort, allocated.Limits{}, nil,
			"cpu.shares=2 cpu.cfs_quota_us=-1? memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=max 100000? memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"no quota wanted", rules{NoCPUQuota: true}, v1.PodQOSBurstable, some, nil,
			"cpu.shares=512 cpu.cfs_quota_us=-1? memory.limit_in_bytes=67108864 pids.max=max?",
			"cpu.weight=59 cpu.max=max 100000? memory.max=67108864 pids.max=max? memory.swap.max=0?",
		},
		{
			"short period", rules{CPUPeriod: 10 * time.Millisecond}, v1.PodQOSBurstable, allocated.Limits{CPUMilli: 1, CPULimitMilli: 500}, nil,
			"cpu.shares=2 cpu.cfs_period_us=10000 cpu.cfs_quota_us=5000 memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=5000 10000 memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"the least quota", rules{}, v1.PodQOSBurstable, allocated.Limits{CPUMilli: 1, CPULimitMilli: 1}, nil,
			"cpu.shares=2 cpu.cfs_period_us=100000 cpu.cfs_quota_us=1000 memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=1000 100000 memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"whole percents", rules{WholePercents: true}, v1.PodQOSBurstable, allocated.Limits{CPUMilli: 1, CPULimitMilli: 15}, nil,
			"cpu.shares=2 cpu.cfs_period_us=100000 cpu.cfs_quota_us=2000 memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=2000 100000 memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"whole percents of none", rules{WholePercents: true}, v1.PodQOSBurstable, allocated.Limits{CPUMilli: 1}, nil,
			"cpu.shares=2 cpu.cfs_quota_us=-1? memory.limit_in_bytes=-1 pids.max=max?",
			"cpu.weight=1 cpu.max=max 100000? memory.max=max pids.max=max? memory.swap.max=0?",
		},
		{
			"huge pages", rules{HugePages: []string{"2MB", "1GB"}}, v1.PodQOSBestEffort, allocated.Limits{}, map[string]int64{"2MB": 4 * mi},
			"cpu.shares=2 cpu.cfs_quota_us=-1? memory.limit_in_bytes=-1 pids.max=max? hugetlb.2MB.limit_in_bytes=4194304 hugetlb.2MB.rsvd.limit_in_bytes=4194304? hugetlb.1GB.limit_in_bytes=0 hugetlb.1GB.rsvd.limit_in_bytes=0?",
			"cpu.weight=1 cpu.max=max 100000? memory.max=max pids.max=max? memory.swap.max=0? hugetlb.2MB.max=4194304 hugetlb.2MB.rsvd.max=4194304? hugetlb.1GB.max=0 hugetlb.1GB.rsvd.max=0?",
		},
	} {
		if c.rules.CPUPeriod == 0 {
			c.rules.CPUPeriod = 100 * time.Millisecond
		}
		for v2, want := range map[bool]string{false: c.v1, true: c.v2} {
			c.rules.V2 = v2
			if got := settingsText(c.rules.Pod(c.class, c.limits, c.pages)); got != want {
				t.Errorf("%s, v2 %v:\n got %s\nwant %s", c.name, v2, got, want)
			}
		}
	}
}

func TestProtected(t *testing.T) {
	if pods, tier := (rules{}).Protected(1, 2); pods != nil || tier != nil {
		t.Errorf("cgroup v1 can't: %v, %v", pods, tier)
	}
	pods, tier := rules{V2: true}.Protected(100, 20)
	if got, want := settingsText(pods)+" | "+settingsText(tier), "memory.min=120 memory.low=20 | memory.low=20"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	pods, tier = rules{V2: true}.Protected(0, 0)
	if got, want := settingsText(pods)+" | "+settingsText(tier), "memory.min=0? memory.low=0? | memory.low=0?"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What a group's weight stands for weighs the same again.
func TestCPUMilli(t *testing.T) {
	for _, r := range []rules{{}, {V2: true}} {
		for _, milli := range []int64{0, 1, 2, 10, 100, 250, 1000, 3999, 64000, 255999, 1 << 40} {
			weight := r.Shares(allocated.Shares(milli)).Value
			n, err := strconv.ParseInt(weight, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			back := r.CPUMilli(n)
			if again := r.Shares(allocated.Shares(back)).Value; again != weight || back > milli {
				t.Errorf("%+v: %dm weighs %s, taken for %dm, which weighs %s", r, milli, weight, back, again)
			}
		}
		if got := r.CPUMilli(1 << 40); got != 256000 {
			t.Errorf("%+v: a weight that no group has stands for %dm", r, got)
		}
	}
}
