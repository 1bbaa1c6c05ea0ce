package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestHealthOfDevices: each container's status has its own devices; what was decided isn't changed.
func TestHealthOfDevices(t *testing.T) {
	gpus := []v1.ResourceStatus{{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: v1.ResourceHealthStatusUnhealthy}}}}
	decided := &v1.PodStatus{Phase: v1.PodRunning, InitContainerStatuses: []v1.ContainerStatus{{Name: "init"}}, ContainerStatuses: []v1.ContainerStatus{{Name: "main"}, {Name: "other"}}}
	before := decided.DeepCopy()
	want := decided.DeepCopy()
	want.InitContainerStatuses[0].AllocatedResourcesStatus, want.ContainerStatuses[0].AllocatedResourcesStatus = gpus, gpus
	if diff := cmp.Diff(want, withHealth(decided, map[string][]v1.ResourceStatus{"init": gpus, "main": gpus})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, decided); diff != "" {
		t.Errorf("what was decided is another: %s", diff)
	}
	if withHealth(decided, nil) != decided {
		t.Error("without devices it is copied")
	}
}
