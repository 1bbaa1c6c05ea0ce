package executor

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
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

// assigned has an assignment of CPUs for each container.
type assigned struct{ translate.Assignment }

func (a assigned) For(context.Context, *v1.Pod, *v1.Container) (translate.Devices, error) {
	return translate.Devices{Assignment: a.Assignment}, nil
}

// A container that is resized keeps the CPUs and memory nodes that are its own.
func TestResizedContainerKeepsItsCPUs(t *testing.T) {
	runtime := &busyRuntime{}
	r := New(Config{Runtime: runtime, Devices: assigned{translate.Assignment{CPUs: "2-3", Mems: "0", NoQuota: true}}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} }})
	next := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Resources: next}}}}
	if err := r.resizeContainer(t.Context(), p, &p.Spec.Containers[0], pod.Action{Kind: pod.ResizeContainer, Container: "web", Resources: &next}); err != nil {
		t.Fatal(err)
	}
	if g := runtime.given; g.CpusetCpus != "2-3" || g.CpusetMems != "0" || g.CpuQuota != -1 || g.CpuShares != 2048 {
		t.Errorf("it was given %v", g)
	}
}

// The kernel would kill a container that uses more than its new limit (KEP-1287).
func TestMemoryLimitBelowUsage(t *testing.T) {
	r := New(Config{Runtime: &busyRuntime{}, Devices: assigned{}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} }})
	next := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Resources: next}}}}
	err := r.resizeContainer(t.Context(), p, &p.Spec.Containers[0], pod.Action{Kind: pod.ResizeContainer, Container: "web", Resources: &next})
	const want = `attempting to set container "web" memory limit (67108864) below current usage (104857600): the limit stays as it was until it uses less`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
