package translate_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const mi = 1 << 20

// podOf reads a pod's spec.
func podOf(t *testing.T, class v1.PodQOSClass, spec string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{Status: v1.PodStatus{QOSClass: class}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// made are the resources that the pod's first container is made with.
func made(t *testing.T, s *translate.Settings, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	t.Helper()
	cfg, err := translate.ContainerConfig(s, translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Linux.Resources
}

func text(t *testing.T, r *runtimeapi.LinuxContainerResources) string {
	t.Helper()
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestMemoryOfContainers: what containers of each kind are made with, and what a
// resize to the same gives them, on nodes of each kind. OOM scores have their own test.
func TestMemoryOfContainers(t *testing.T) {
	node := translate.Settings{NoCPUQuota: true, MemoryCapacity: 4 * gi, GroupOOMKill: false}
	v1Host, noSwap, limitedSwap, throttled, reserved := node, node, node, node, node
	v1Host.BoundSwap, v1Host.Swap, v1Host.MemoryQoS = true, 2*gi, translate.MemoryQoS{Enabled: true, Reserve: true, Allocatable: 3 * gi}
	noSwap.CgroupV2, noSwap.BoundSwap = true, true
	limitedSwap.CgroupV2, limitedSwap.BoundSwap, limitedSwap.Swap = true, true, 2*gi
	throttled.CgroupV2, throttled.MemoryQoS = true, translate.MemoryQoS{Enabled: true, Allocatable: 3 * gi}
	reserved.CgroupV2, reserved.MemoryQoS = true, translate.MemoryQoS{Enabled: true, Reserve: true, ThrottlingFactor: 1, Allocatable: 3 * gi}

	const (
		loose  = `containers: [{name: a, resources: {requests: {memory: 512Mi}, limits: {memory: 1Gi}}}]`
		open   = `containers: [{name: a, resources: {requests: {memory: 512Mi}}}]`
		equal  = `containers: [{name: a, resources: {requests: {memory: 512Mi}, limits: {memory: 512Mi}}}]`
		none   = `containers: [{name: a}]`
		shared = `{resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}, containers: [{name: a, resources: {requests: {memory: 512Mi}}}]}`
		node1  = `{priorityClassName: system-node-critical, containers: [{name: a, resources: {requests: {memory: 512Mi}, limits: {memory: 1Gi}}}]}`
	)
	for _, c := range []struct {
		name          string
		s             *translate.Settings
		class         v1.PodQOSClass
		spec          string
		made, resized string
	}{
		{"cgroup v1 knows none of it", &v1Host, v1.PodQOSBurstable, loose,
			`"memory_limit_in_bytes":1073741824,"memory_swap_limit_in_bytes":1073741824`, `"memory_limit_in_bytes":1073741824,"memory_swap_limit_in_bytes":1073741824`},
		{"cgroup v1, no limit", &v1Host, v1.PodQOSBurstable, open, ``, `"memory_limit_in_bytes":-1,"memory_swap_limit_in_bytes":-1`},

		{"no swap", &noSwap, v1.PodQOSBurstable, loose,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`},
		{"no swap, no limit", &noSwap, v1.PodQOSBestEffort, none,
			`"unified":{"memory.swap.max":"0"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":-1`},

		{"limited swap", &limitedSwap, v1.PodQOSBurstable, loose,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.swap.max":"268435456"},"memory_swap_limit_in_bytes":1342177280`,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"max","memory.swap.max":"268435456"},"memory_swap_limit_in_bytes":1342177280`},
		{"limited swap, no limit", &limitedSwap, v1.PodQOSBurstable, open,
			`"unified":{"memory.swap.max":"268435456"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"max","memory.swap.max":"268435456"},"memory_swap_limit_in_bytes":-1`},
		{"limited swap, request is limit", &limitedSwap, v1.PodQOSBurstable, equal,
			`"memory_limit_in_bytes":536870912,"unified":{"memory.swap.max":"0"},"memory_swap_limit_in_bytes":536870912`,
			`"memory_limit_in_bytes":536870912,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":536870912`},
		{"limited swap, guaranteed", &limitedSwap, v1.PodQOSGuaranteed, loose,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`},
		{"limited swap, best effort", &limitedSwap, v1.PodQOSBestEffort, none,
			`"unified":{"memory.swap.max":"0"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":-1`},
		{"limited swap, critical", &limitedSwap, v1.PodQOSBurstable, node1,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"max","memory.swap.max":"0"},"memory_swap_limit_in_bytes":1073741824`},
		{"limited swap, the pod's limit", &limitedSwap, v1.PodQOSBurstable, shared,
			`"memory_limit_in_bytes":2147483648,"unified":{"memory.swap.max":"268435456"},"memory_swap_limit_in_bytes":2415919104`,
			`"memory_limit_in_bytes":2147483648,"unified":{"memory.high":"max","memory.swap.max":"268435456"},"memory_swap_limit_in_bytes":2415919104`},

		{"throttled between request and limit", &throttled, v1.PodQOSBurstable, loose,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"1020051456"}`, `"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"1020051456"}`},
		{"throttled below the node's allocatable", &throttled, v1.PodQOSBurstable, open,
			`"unified":{"memory.high":"2952790016"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"2952790016"}`},
		{"throttled below the pod's limit", &throttled, v1.PodQOSBurstable, shared,
			`"memory_limit_in_bytes":2147483648,"unified":{"memory.high":"1986420736"}`, `"memory_limit_in_bytes":2147483648,"unified":{"memory.high":"1986420736"}`},
		{"best effort is throttled", &throttled, v1.PodQOSBestEffort, none,
			`"unified":{"memory.high":"2899099648"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"2899099648"}`},
		{"not between equals", &throttled, v1.PodQOSBurstable, equal,
			`"memory_limit_in_bytes":536870912`, `"memory_limit_in_bytes":536870912,"unified":{"memory.high":"max"}`},
		{"guaranteed isn't throttled", &throttled, v1.PodQOSGuaranteed, equal,
			`"memory_limit_in_bytes":536870912`, `"memory_limit_in_bytes":536870912,"unified":{"memory.high":"max"}`},

		{"guaranteed is protected for good", &reserved, v1.PodQOSGuaranteed, equal,
			`"memory_limit_in_bytes":536870912,"unified":{"memory.min":"536870912"}`,
			`"memory_limit_in_bytes":536870912,"unified":{"memory.high":"max","memory.low":"0","memory.min":"536870912"}`},
		{"burstable is protected", &reserved, v1.PodQOSBurstable, loose,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"1073741824","memory.low":"536870912"}`,
			`"memory_limit_in_bytes":1073741824,"unified":{"memory.high":"1073741824","memory.low":"536870912","memory.min":"0"}`},
		{"best effort isn't protected", &reserved, v1.PodQOSBestEffort, none,
			`"unified":{"memory.high":"3221225472"}`, `"memory_limit_in_bytes":-1,"unified":{"memory.high":"3221225472","memory.low":"0","memory.min":"0"}`},
	} {
		p := podOf(t, c.class, c.spec)
		a := &p.Spec.Containers[0]
		want := func(rest string) string {
			if rest != "" {
				rest = "," + rest
			}
			return `{"cpu_shares":2` + rest + `}`
		}
		got := made(t, c.s, p)
		got.OomScoreAdj = 0
		if text(t, got) != want(c.made) {
			t.Errorf("%s, made:\n got %s\nwant %s", c.name, text(t, got), want(c.made))
		}
		if got := translate.ResizedResources(c.s, p, &v1.Container{Name: a.Name}, a.Resources, translate.Assignment{}); text(t, got) != want(c.resized) {
			t.Errorf("%s, resized:\n got %s\nwant %s", c.name, text(t, got), want(c.resized))
		}
	}
}

func TestGroupOOMKillGoesWithTheRest(t *testing.T) {
	s := &translate.Settings{GroupOOMKill: true, CgroupV2: true, BoundSwap: true}
	equal(t, "unified", made(t, s, podOf(t, v1.PodQOSBestEffort, `containers: [{name: a}]`)).Unified, map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"})
}

// TestLimitsOfThePodHoldForContainers follows the rows of KEP-2837's table.
func TestLimitsOfThePodHoldForContainers(t *testing.T) {
	s := &translate.Settings{HugePageSizes: []string{"2MB"}}
	for _, c := range []struct {
		name, spec string
		want       string
	}{
		{"only the pod has any", `{resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 4Mi}}, containers: [{name: a}]}`,
			`{"cpu_period":100000,"cpu_quota":200000,"cpu_shares":2,"memory_limit_in_bytes":1073741824,"hugepage_limits":[{"page_size":"2MB","limit":4194304}]}`},
		{"the container has its own", `{resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 4Mi}}, containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Mi, hugepages-2Mi: 2Mi}}}]}`,
			`{"cpu_period":100000,"cpu_quota":100000,"cpu_shares":1024,"memory_limit_in_bytes":1048576,"hugepage_limits":[{"page_size":"2MB","limit":2097152}]}`},
		{"one of each", `{resources: {limits: {cpu: 2, memory: 1Gi}}, containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {memory: 1Mi}}}]}`,
			`{"cpu_period":100000,"cpu_quota":200000,"cpu_shares":512,"memory_limit_in_bytes":1048576,"hugepage_limits":[{"page_size":"2MB"}]}`},
		{"requests of the pod bound nothing", `{resources: {requests: {cpu: 2, memory: 1Gi}}, containers: [{name: a}]}`,
			`{"cpu_period":100000,"cpu_shares":2,"hugepage_limits":[{"page_size":"2MB"}]}`},
	} {
		r := made(t, s, podOf(t, v1.PodQOSBurstable, c.spec))
		r.OomScoreAdj = 0
		equal(t, c.name, text(t, r), c.want)
	}
	p := podOf(t, v1.PodQOSBurstable, `{resources: {limits: {cpu: 3}}, containers: [{name: a}]}`)
	r := translate.ResizedResources(s, p, &p.Spec.Containers[0], v1.ResourceRequirements{}, translate.Assignment{})
	equal(t, "resized", []int64{r.CpuQuota, r.MemoryLimitInBytes}, []int64{300000, -1})
}

func TestHugePages(t *testing.T) {
	p := podOf(t, v1.PodQOSBestEffort, `containers: [{name: a, resources: {limits: {hugepages-1Gi: 2Gi, hugepages-64Ki: 64Ki}}}]`)
	s := &translate.Settings{HugePageSizes: []string{"1GB", "2MB"}}
	r := made(t, s, p)
	equal(t, "limits", r.HugepageLimits, []*runtimeapi.HugepageLimit{{PageSize: "1GB", Limit: 2 * gi}, {PageSize: "2MB"}})
	if r := made(t, &translate.Settings{}, p); r.HugepageLimits != nil {
		t.Errorf("a node that can't bound any: %v", r.HugepageLimits)
	}
	if r := translate.ResizedResources(s, p, &p.Spec.Containers[0], p.Spec.Containers[0].Resources, translate.Assignment{}); r.HugepageLimits != nil {
		t.Errorf("can't be resized: %v", r.HugepageLimits)
	}
}

func TestSandboxHasOverheadAndResourcesApart(t *testing.T) {
	p := podOf(t, v1.PodQOSBurstable, `{overhead: {cpu: 250m, memory: 64Mi}, containers: [{name: a, resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}`)
	p.Name = "web"
	cfg := sandbox(t, p)
	equal(t, "overhead", text(t, cfg.Linux.Overhead), `{"cpu_period":100000,"cpu_quota":25000,"cpu_shares":256,"memory_limit_in_bytes":67108864}`)
	equal(t, "resources", text(t, cfg.Linux.Resources), `{"cpu_period":100000,"cpu_quota":200000,"cpu_shares":2048,"memory_limit_in_bytes":1073741824}`)
	p = podOf(t, v1.PodQOSBurstable, `{resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}, containers: [{name: a}]}`)
	p.Name = "web"
	equal(t, "of the pod as a whole", text(t, sandbox(t, p).Linux.Resources), `{"cpu_period":100000,"cpu_quota":100000,"cpu_shares":512,"memory_limit_in_bytes":1073741824}`)
}

// TestContainersNeverSwapMoreThanTheirPod: together, by the pod's own bound.
func TestContainersNeverSwapMoreThanTheirPod(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	list := func() v1.ResourceList {
		if rnd.IntN(3) == 0 {
			return nil
		}
		return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(rnd.Int64N(4)*mi+rnd.Int64N(3), resource.BinarySI)}
	}
	some := func(always bool) v1.Container {
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: list(), Limits: list()}}
		if always {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		return c
	}
	for range 2000 {
		s := &translate.Settings{CgroupV2: true, BoundSwap: true, MemoryCapacity: 32*mi + rnd.Int64N(mi), Swap: rnd.Int64N(64 * mi)}
		p := &v1.Pod{Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable}}
		for range 1 + rnd.IntN(3) {
			p.Spec.Containers = append(p.Spec.Containers, some(false))
		}
		for range rnd.IntN(3) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, some(true))
		}
		var sum int64
		for _, cs := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range cs {
				limit := translate.SwapLimit(s, p, &cs[i])
				if unified := translate.ResizedResources(s, p, &cs[i], cs[i].Resources, translate.Assignment{}).Unified["memory.swap.max"]; unified != strconv.FormatInt(limit, 10) {
					t.Fatalf("memory.swap.max is %s, the limit %d", unified, limit)
				}
				sum += limit
			}
		}
		whole := allocated.SwapShare(allocated.PodLimits(p, nil).SwapRequest, s.MemoryCapacity, s.Swap)
		if sum > whole || whole > s.Swap {
			t.Fatalf("containers may swap %d, the pod %d, all %d", sum, whole, s.Swap)
		}
	}
}

func TestHighIsInWholePages(t *testing.T) {
	s := &translate.Settings{CgroupV2: true, MemoryQoS: translate.MemoryQoS{Enabled: true, Allocatable: gi + 1}}
	high := made(t, s, podOf(t, v1.PodQOSBestEffort, `containers: [{name: a}]`)).Unified["memory.high"]
	if n, err := strconv.ParseInt(high, 10, 64); err != nil || n%int64(os.Getpagesize()) != 0 || n == 0 {
		t.Errorf("memory.high is %q", high)
	}
}
