package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// busyRuntime has a container that uses 100 MiB, and remembers what it was given.
type busyRuntime struct {
	Runtime
	given *runtimeapi.LinuxContainerResources
}

func (*busyRuntime) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: 100 << 20}}}, nil
}

func (b *busyRuntime) UpdateContainerResources(_ context.Context, _ string, r *runtimeapi.LinuxContainerResources) error {
	b.given = r
	return nil
}

// anyCgroup takes any limits for a pod's cgroup.
type anyCgroup struct {
	Cgroups
	given allocated.Limits
}

func (g *anyCgroup) Resize(_ context.Context, _ *v1.Pod, l allocated.Limits) error {
	g.given = l
	return nil
}

type noAllocations struct{ Allocations }

func (noAllocations) Get(types.UID) *pod.Allocation { return nil }

func (noAllocations) Unthrottled(*v1.Pod) bool { return false }

func (noAllocations) Starting(context.Context, *v1.Pod, *v1.Container, string) (started func(), err error) {
	return func() {}, nil
}

// virtual is a runtime that is told what its sandboxes may use, and may refuse.
type virtual struct {
	Runtime
	err     error
	updates []string
}

func (v *virtual) UpdatePodSandboxResources(_ context.Context, id string, overhead, r *runtimeapi.LinuxContainerResources) error {
	v.updates = append(v.updates, fmt.Sprint(id, overhead.GetMemoryLimitInBytes(), r.GetMemoryLimitInBytes(), r.GetCpuShares()))
	return v.err
}

// The runtime gets each change of a pod as a whole, after its cgroup has changed; whether it takes that in keeps no pod from its resources.
func TestRuntimeIsToldOfResizedPods(t *testing.T) {
	allocation := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"web": {Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")}}}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web"}}, Overhead: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}}}
	seen := &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "new", State: pod.SandboxReady}, {ID: "old"}}}
	for _, c := range []struct {
		name   string
		seen   *pod.Observed
		err    error
		told   []string
		logged int
	}{
		{"it takes that in", seen, nil, []string{"new16777216 67108864 512"}, 0},
		{"it knows nothing of that", seen, status.Error(codes.Unimplemented, "what?"), []string{"new16777216 67108864 512"}, 0},
		{"it fails", seen, errors.New("no"), []string{"new16777216 67108864 512"}, 1},
		{"without a sandbox", nil, nil, nil, 0},
		{"the sandbox has ended", &pod.Observed{Sandboxes: seen.Sandboxes[1:]}, nil, nil, 0},
	} {
		logged, runtime, group := 0, &virtual{err: c.err}, &anyCgroup{}
		r := New(Config{Runtime: runtime, Cgroups: group, Allocations: noAllocations{}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} },
			Log: funcr.New(func(_, _ string) { logged++ }, funcr.Options{})})
		if err := r.resizePod(t.Context(), p, c.seen, pod.Action{Kind: pod.ResizePod, PodResources: allocation}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(runtime.updates, c.told) || logged != c.logged || group.given.MemoryLimit != 80<<20 {
			t.Errorf("%s: told %q, want %q; logged %d times; the cgroup may have %d", c.name, runtime.updates, c.told, logged, group.given.MemoryLimit)
		}
	}
}

// assigned has an assignment of CPUs for each container.
type assigned struct {
	grants
	translate.Assignment
}

func (a assigned) Assigned(context.Context, *v1.Pod, *v1.Container) (translate.Devices, error) {
	return translate.Devices{Assignment: a.Assignment}, nil
}

// A container that is resized keeps the CPUs and memory nodes that are its own: the update has none, as the assigner may change them at
// the same time.
func TestResizedContainerKeepsItsCPUs(t *testing.T) {
	runtime := &busyRuntime{}
	r := New(Config{Runtime: runtime, Allocations: assigned{Assignment: translate.Assignment{CPUs: "2-3", Mems: "0", NoQuota: true}}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} }})
	next := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Resources: next}}}}
	if err := r.resizeContainer(t.Context(), p, &p.Spec.Containers[0], pod.Action{Kind: pod.ResizeContainer, Container: "web", Resources: &next}); err != nil {
		t.Fatal(err)
	}
	if g := runtime.given; g.CpusetCpus != "" || g.CpusetMems != "" || g.CpuQuota != -1 || g.CpuShares != 2048 {
		t.Errorf("it was given %v", g)
	}
}

// The kernel would kill a container that uses more than its new limit (KEP-1287).
func TestMemoryLimitBelowUsage(t *testing.T) {
	r := New(Config{Runtime: &busyRuntime{}, Allocations: assigned{}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} }})
	next := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Resources: next}}}}
	err := r.resizeContainer(t.Context(), p, &p.Spec.Containers[0], pod.Action{Kind: pod.ResizeContainer, Container: "web", Resources: &next})
	const want = `attempting to set container "web" memory limit (67108864) below current usage (104857600): the limit stays as it was until it uses less`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
