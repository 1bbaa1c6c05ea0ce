package allocated_test

import (
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

const mi = 1 << 20

func TestCritical(t *testing.T) {
	for _, c := range []struct {
		priority *int32
		class    string
		want     bool
	}{
		{nil, "", false}, {nil, "system-node-critical", true}, {nil, "system-cluster-critical", true}, {nil, "important", false},
		{ptr.To(int32(2_000_000_000)), "", true}, {ptr.To(int32(2_000_001_000)), "system-node-critical", true}, {ptr.To(int32(1_000_000_000)), "important", false},
	} {
		p := makePod(nothing)
		p.Spec.Priority, p.Spec.PriorityClassName = c.priority, c.class
		if allocated.Critical(p) != c.want {
			t.Errorf("priority %v, class %q: not %v", ptr.Deref(c.priority, 0), c.class, c.want)
		}
	}
}

func TestExemptFromPressure(t *testing.T) {
	const source = "kubernetes.io/config.source"
	for _, c := range []struct {
		annotations      map[string]string
		priority         int32
		inCluster, alone bool
	}{
		{nil, 0, false, false}, {nil, 2_000_000_000, true, true}, {map[string]string{source: "api"}, 0, false, false}, {map[string]string{source: "file"}, 0, true, false},
		{map[string]string{source: "http"}, 0, true, false}, {map[string]string{source: "api", "kubernetes.io/config.mirror": "h"}, 0, true, false}, {map[string]string{source: "file"}, 2_000_000_000, true, true},
	} {
		p := makePod(nothing)
		p.Annotations, p.Spec.Priority = c.annotations, &c.priority
		if in, alone := allocated.ExemptFromPressure(p, true), allocated.ExemptFromPressure(p, false); in != c.inCluster || alone != c.alone {
			t.Errorf("%v, priority %d: %v in a cluster, %v without", c.annotations, c.priority, in, alone)
		}
	}
}

func TestSwapRequest(t *testing.T) {
	for _, c := range []struct {
		n    need
		want int64
	}{
		{nothing, 0}, {loose, 32 * mi}, {exact, 0}, {need{"", "", "8Mi", ""}, 8 * mi}, {need{"", "", "8Mi", "8192Ki"}, 0}, {need{"", "", "0", "8Mi"}, 0}, {need{"", "", "", "8Mi"}, 0},
	} {
		p := makePod(c.n)
		if got := allocated.SwapRequest(p, &p.Spec.Containers[0]); got != c.want {
			t.Errorf("%v: %d, want %d", c.n, got, c.want)
		}
		p.Spec.PriorityClassName = "system-cluster-critical"
		if got := allocated.SwapRequest(p, &p.Spec.Containers[0]); got != 0 {
			t.Errorf("%v, critical: %d", c.n, got)
		}
	}
}

func TestContainerLimits(t *testing.T) {
	whole := need{"", "4", "", "1Gi"}.requirements()
	whole.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	whole.Limits["example.com/gpu"] = resource.MustParse("1")
	own := need{"1", "2", "1Mi", ""}.requirements()
	p := makePod(nothing)
	if got := allocated.ContainerLimits(p, own.Limits); len(got) != 1 || got.Cpu().MilliValue() != 2000 {
		t.Errorf("without limits of the pod: %v", got)
	}
	p.Spec.Resources = &whole
	got := allocated.ContainerLimits(p, own.Limits)
	huge := got["hugepages-2Mi"]
	if len(got) != 3 || got.Cpu().MilliValue() != 2000 || got.Memory().Value() != 1<<30 || huge.Value() != 4*mi {
		t.Errorf("with limits of the pod: %v", got)
	}
	if len(own.Limits) != 1 {
		t.Error("the container's own were changed")
	}
	if got := allocated.ContainerLimits(p, nil); len(got) != 3 || got.Cpu().MilliValue() != 4000 {
		t.Errorf("a container without any: %v", got)
	}
	if got := allocated.ContainerLimits(p, v1.ResourceList{v1.ResourceMemory: resource.MustParse("0")}); got.Memory().Value() != 1<<30 {
		t.Errorf("zero is no limit: %v", got)
	}
}

// TestPodsCoverTheirContainers: whichever containers run at one time, what they
// may swap and have protected is within the pod's.
func TestPodsCoverTheirContainers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	some := func() need {
		memory := func() string {
			return resource.NewQuantity(rnd.Int64N(3)*mi, resource.BinarySI).String()
		}
		n := need{"", "", memory(), ""}
		if rnd.IntN(2) == 0 {
			n[3] = memory()
		}
		return n
	}
	for range 3000 {
		p := makePod(some(), some())
		for range rnd.IntN(4) {
			withInit(p, some(), rnd.IntN(2) == 0)
		}
		l := allocated.PodLimits(p, nil)
		check := func(at string, running []*v1.Container) {
			var swap, memory int64
			for _, c := range running {
				swap += allocated.SwapRequest(p, c)
				memory += c.Resources.Requests.Memory().Value()
			}
			if swap > l.SwapRequest || memory > l.MemoryRequest || l.SwapRequest > l.MemoryRequest {
				t.Fatalf("%s: containers have %d and %d, the pod %+v: %+v", at, swap, memory, l, p.Spec)
			}
		}
		var sidecars []*v1.Container
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			check("init", append(sidecars[:len(sidecars):len(sidecars)], c))
			if c.RestartPolicy != nil {
				sidecars = append(sidecars, c)
			}
		}
		check("main", append(sidecars, &p.Spec.Containers[0], &p.Spec.Containers[1]))
	}
}
