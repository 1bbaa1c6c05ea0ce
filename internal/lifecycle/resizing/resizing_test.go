package resizing_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

func cpu(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(s)} }

// whole is a pod with these limits as a whole, and three containers with none of their own.
func whole(limit string) *v1.Pod {
	debug := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}
	return &v1.Pod{Spec: v1.PodSpec{
		Resources:           &v1.ResourceRequirements{Requests: cpu("500m"), Limits: cpu(limit)},
		InitContainers:      []v1.Container{{Name: "init"}},
		Containers:          []v1.Container{{Name: "web"}},
		EphemeralContainers: []v1.EphemeralContainer{debug},
	}}
}

func running(name, under string) pod.Container {
	made := &pod.CreatedWith{Resources: &v1.ResourceRequirements{}}
	if under != "" {
		made.PodLimits = cpu(under)
	}
	return pod.Container{ID: name + "1", Name: name, SandboxID: "sb", State: pod.ContainerRunning, CreatedWith: made}
}

// An agent was killed after the pod had been granted other limits as a whole, and before
// the containers that go by them were resized. No group may be bounded below those in it.
func TestAtFirstAllowsWhatRuns(t *testing.T) {
	resized := &pod.Checkpoint{
		Resized:      map[string]v1.ResourceRequirements{"web1": {}},
		ResizedUnder: map[string]v1.ResourceList{"web1": cpu("3")},
	}
	for _, c := range []struct {
		name    string
		granted string
		kept    *pod.Checkpoint
		runs    []pod.Container
		inPlace int
		want    int64 // thousandths; 0 for no bound
	}{
		{"lowered", "1", nil, []pod.Container{running("web", "2")}, 1, 2000},
		{"raised", "4", nil, []pod.Container{running("web", "2")}, 1, 4000},
		{"as it is", "2", nil, []pod.Container{running("web", "2")}, 0, 2000},
		{"resized once before", "1", resized, []pod.Container{running("web", "2")}, 1, 3000},
		{"made when there was no limit", "1", nil, []pod.Container{running("web", "")}, 1, 0},
		{"an init container", "1", nil, []pod.Container{running("init", "2")}, 0, 2000},
		{"an ephemeral one", "1", nil, []pod.Container{running("web", "1"), running("debug", "2")}, 0, 2000},
		{"the greatest of all", "1", nil, []pod.Container{running("web", "2"), running("debug", "3")}, 1, 3000},
	} {
		if c.kept == nil {
			c.kept = &pod.Checkpoint{}
		}
		p := whole(c.granted)
		members := container.Of(p, &pod.Observed{Containers: c.runs}, "sb")
		s := resizing.Measure(p, members, allocated.Of(p), nil, false, c.kept)
		if len(s.InPlace) != c.inPlace || len(s.Restart) != 0 {
			t.Errorf("%s: %d to be resized in place, %d to be restarted, want %d and 0", c.name, len(s.InPlace), len(s.Restart), c.inPlace)
		}
		if got := allocated.PodLimits(p, s.AtFirst()).CPULimitMilli; got != c.want {
			t.Errorf("%s: the pod's group would allow %dm of CPU, want %dm", c.name, got, c.want)
		}
	}
}

func TestNothingAllocatedYet(t *testing.T) {
	p := whole("1")
	s := resizing.Measure(p, container.Of(p, nil, ""), nil, nil, false, &pod.Checkpoint{})
	if s.AtFirst() != nil || s.UnderWay() {
		t.Errorf("got %+v", s)
	}
}
