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

// busyRuntime has a container that uses 100 MiB. Resizing it would be a call that isn't there.
type busyRuntime struct{ Runtime }

func (busyRuntime) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: 100 << 20}}}, nil
}

// The kernel would kill a container that uses more than its new limit (KEP-1287).
func TestMemoryLimitBelowUsage(t *testing.T) {
	r := New(Config{Runtime: busyRuntime{}, Parallel: 1, Settings: func() *translate.Settings { return &translate.Settings{} }})
	next := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Resources: next}}}}
	err := r.resizeContainer(t.Context(), p, &p.Spec.Containers[0], pod.Action{Kind: pod.ResizeContainer, Container: "web", Resources: &next})
	const want = `attempting to set container "web" memory limit (67108864) below current usage (104857600): the limit stays as it was until it uses less`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
