package allocated_test

import (
	"encoding/json"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// need is "cpu request, cpu limit, memory request, memory limit"; "" leaves one out.
type need [4]string

func (n need) requirements() v1.ResourceRequirements {
	r := v1.ResourceRequirements{}
	set := func(l *v1.ResourceList, name v1.ResourceName, value string) {
		if value == "" {
			return
		}
		if *l == nil {
			*l = v1.ResourceList{}
		}
		(*l)[name] = resource.MustParse(value)
	}
	set(&r.Requests, v1.ResourceCPU, n[0])
	set(&r.Limits, v1.ResourceCPU, n[1])
	set(&r.Requests, v1.ResourceMemory, n[2])
	set(&r.Limits, v1.ResourceMemory, n[3])
	return r
}

// makePod has the containers a, b, ...
func makePod(needs ...need) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 7}}
	for i, n := range needs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Resources: n.requirements()})
	}
	return p
}

func withInit(p *v1.Pod, n need, sidecar bool) *v1.Pod {
	c := v1.Container{Name: "init", Resources: n.requirements()}
	if sidecar {
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	}
	p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	return p
}

func withPodLevel(p *v1.Pod, n need) *v1.Pod {
	p.Spec.Resources = ptr.To(n.requirements())
	return p
}

var (
	nothing = need{}
	exact   = need{"500m", "500m", "64Mi", "64Mi"}
	loose   = need{"100m", "1", "32Mi", "64Mi"}
)

func TestOf(t *testing.T) {
	p := withPodLevel(withInit(makePod(exact, nothing), loose, true), need{"", "2", "", ""})
	want := &pod.Allocation{
		Generation: 7,
		Containers: map[string]v1.ResourceRequirements{"a": exact.requirements(), "b": {}, "init": loose.requirements()},
		Pod:        ptr.To(need{"", "2", "", ""}.requirements()),
	}
	got := allocated.Of(p)
	if total := got.Total; len(total) != 2 || total.Cpu().MilliValue() != 600 || total.Memory().Value() != 96<<20 {
		t.Errorf("total: %v, want 600m and 96Mi", total)
	}
	got.Total = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEqual(t *testing.T) {
	of := func(p *v1.Pod) *pod.Allocation { return allocated.Of(p) }
	base := of(makePod(exact))
	later := makePod(exact)
	later.Generation++
	claims := makePod(exact)
	claims.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	for _, c := range []struct {
		name string
		a, b *pod.Allocation
		want bool
	}{
		{"itself", base, base, true},
		{"the same", base, of(makePod(exact)), true},
		{"written differently", base, of(makePod(need{"0.5", "500m", "65536Ki", "64Mi"})), true},
		{"another generation", base, of(later), true},
		{"claims", base, of(claims), true},
		{"no lists and empty lists", of(makePod(nothing)), &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"a": {Requests: v1.ResourceList{}}}}, true},
		{"no pod level and an empty one", base, of(withPodLevel(makePod(exact), nothing)), true},
		{"another request", base, of(makePod(need{"501m", "500m", "64Mi", "64Mi"})), false},
		{"another limit", base, of(makePod(need{"500m", "500m", "64Mi", "65Mi"})), false},
		{"a limit less", base, of(makePod(need{"500m", "500m", "64Mi", ""})), false},
		{"another pod level", base, of(withPodLevel(makePod(exact), exact)), false},
		{"another container", base, of(makePod(exact, nothing)), false},
		{"nothing at all", nil, nil, true},
		{"nothing and something", nil, base, false},
	} {
		if allocated.Equal(c.a, c.b) != c.want || allocated.Equal(c.b, c.a) != c.want {
			t.Errorf("%s: not %v", c.name, c.want)
		}
	}
}

func TestAllocationSurvivesJSON(t *testing.T) {
	a := allocated.Of(withPodLevel(withInit(makePod(need{"0.1", "1.5", "1e3", "1Gi"}, nothing), loose, false), loose))
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back pod.Allocation
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !allocated.Equal(a, &back) || back.Generation != a.Generation {
		t.Errorf("%s came back as %+v", text, back)
	}
}

func TestApply(t *testing.T) {
	p := withInit(makePod(exact, loose), exact, true)
	p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	for name, a := range map[string]*pod.Allocation{
		"nil": nil, "its own": allocated.Of(p), "its own, read from disk": allocated.Of(withInit(makePod(need{"0.5", "0.5", "64Mi", "64Mi"}, loose), exact, true)),
	} {
		if got := allocated.Apply(p, a); got != p {
			t.Errorf("%s: made a copy", name)
		}
	}
	before := p.DeepCopy()
	granted := withPodLevel(withInit(makePod(loose), nothing, true), loose)
	got := allocated.Apply(p, allocated.Of(granted))
	if !reflect.DeepEqual(p, before) {
		t.Error("the pod itself was changed")
	}
	want := before.DeepCopy()
	want.Spec.Resources = granted.Spec.Resources
	want.Spec.Containers[0].Resources.Requests = granted.Spec.Containers[0].Resources.Requests
	want.Spec.Containers[0].Resources.Limits = granted.Spec.Containers[0].Resources.Limits
	want.Spec.InitContainers[0].Resources = v1.ResourceRequirements{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got.Spec, want.Spec)
	}
	if again := allocated.Apply(got, allocated.Of(granted)); again != got {
		t.Error("applied to itself, it makes a copy")
	}
}

func TestPodLevelResourcesMayComeAndGo(t *testing.T) {
	bare, bounded := makePod(nothing), withPodLevel(makePod(nothing), exact)
	if got := allocated.Apply(bounded, allocated.Of(bare)); got.Spec.Resources != nil {
		t.Errorf("not granted, but applied: %v", got.Spec.Resources)
	}
	if got := allocated.Apply(bare, allocated.Of(bounded)); !reflect.DeepEqual(got.Spec.Resources, bounded.Spec.Resources) {
		t.Errorf("granted, but not applied: %v", got.Spec.Resources)
	}
}

func TestPodLimits(t *testing.T) {
	overhead := makePod(exact)
	overhead.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("8Mi")}
	critical := makePod(loose)
	critical.Spec.PriorityClassName = "system-node-critical"
	// limits are a pod's requests and limits of CPU and memory (MiB), and what it may swap by (MiB).
	limits := func(cpu, cpuLimit, memory, memoryLimit, swap int64) allocated.Limits {
		return allocated.Limits{CPUMilli: cpu, CPULimitMilli: cpuLimit, MemoryRequest: memory * mi, MemoryLimit: memoryLimit * mi, SwapRequest: swap * mi}
	}
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		want allocated.Limits
	}{
		{"nothing", makePod(nothing), allocated.Limits{}},
		{"the sum", makePod(exact, loose), limits(600, 1500, 96, 128, 32)},
		{"one has no limits", makePod(exact, need{"1", "", "1Mi", ""}), limits(1500, 0, 65, 0, 1)},
		{"resources are apart", makePod(exact, need{"", "1", "", ""}), limits(500, 1500, 64, 0, 0)},
		{"zero is no limit", makePod(need{"", "0", "", "0"}), allocated.Limits{}},
		{"a bigger init container", withInit(makePod(exact), need{"2", "2", "1Gi", "1Gi"}, false), limits(2000, 2000, 1024, 1024, 0)},
		{"an init container without limits", withInit(makePod(exact), nothing, false), limits(500, 0, 64, 0, 0)},
		{"an init container that swaps", withInit(makePod(loose), need{"", "", "48Mi", ""}, false), limits(100, 0, 48, 0, 48)},
		{"a sidecar", withInit(makePod(exact), exact, true), limits(1000, 1000, 128, 128, 0)},
		{"a sidecar that swaps", withInit(makePod(loose), loose, true), limits(200, 2000, 64, 128, 64)},
		{"init after a sidecar", withInit(withInit(makePod(nothing), loose, true), loose, false), limits(200, 0, 64, 0, 64)},
		{"the pod's own come first", withPodLevel(makePod(exact, nothing), need{"2", "3", "", "1Gi"}), limits(2000, 3000, 64, 1024, 0)},
		{"the pod's own, of one resource", withPodLevel(makePod(exact, nothing), need{"", "", "", "1Gi"}), limits(500, 0, 64, 1024, 0)},
		{"overhead", overhead, limits(750, 750, 72, 72, 0)},
		{"critical", critical, limits(100, 1000, 32, 64, 0)},
	} {
		if got := allocated.PodLimits(c.pod, nil); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := allocated.PodLimits(makePod(nothing), allocated.Of(makePod(exact))); got != limits(500, 500, 64, 64, 0) {
		t.Errorf("what was granted doesn't count: %+v", got)
	}
}

// What is known of a pod's overhead counts; what isn't is what it was granted.
func TestOverhead(t *testing.T) {
	with := func(cpu string) *v1.Pod {
		p := makePod(exact)
		if cpu != "" {
			p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		}
		return p
	}
	for _, test := range []struct {
		granted, spec string
		milli         int64
	}{{"", "", 500}, {"100m", "100m", 600}, {"100m", "", 600}, {"", "100m", 600}, {"100m", "50m", 550}} {
		p, a := with(test.spec), allocated.Of(with(test.granted))
		before := p.DeepCopy()
		for what, a := range map[string]*pod.Allocation{"granted": a, "on the way": allocated.Most(allocated.Of(with("")), a)} {
			if l := allocated.PodLimits(p, a); l.CPUMilli != test.milli || l.CPULimitMilli != test.milli {
				t.Errorf("granted %q, spec %q: %s it has %+v, want %d", test.granted, test.spec, what, l, test.milli)
			}
		}
		if applied := allocated.Apply(p, a); applied.Spec.Overhead.Cpu().MilliValue() != test.milli-500 || !reflect.DeepEqual(p, before) {
			t.Errorf("granted %q, spec %q: applied %v, pod %v", test.granted, test.spec, applied.Spec.Overhead, p.Spec.Overhead)
		}
	}
}
