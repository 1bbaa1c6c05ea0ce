package allocated_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// amounts are requests and limits of CPU; empty for none.
func amounts(request, limit string) v1.ResourceRequirements {
	var r v1.ResourceRequirements
	if request != "" {
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
	}
	if limit != "" {
		r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)}
	}
	return r
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		a, b v1.ResourceRequirements
		want bool
	}{
		{amounts("1", "2"), amounts("1000m", "2"), false},
		{amounts("1", "2"), amounts("1", "3"), true},
		{amounts("1", "2"), amounts("1", ""), true},
		{amounts("", ""), amounts("", ""), false},
		{amounts("", ""), amounts("1", ""), true},
	} {
		cpu, memory := allocated.Changed(c.a, c.b)
		if cpu != c.want || memory || allocated.Same(c.a, c.b) == c.want {
			t.Errorf("%v and %v: changed %v %v", c.a, c.b, cpu, memory)
		}
	}
	memory := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	if cpu, mem := allocated.Changed(memory, v1.ResourceRequirements{}); cpu || !mem {
		t.Error("a memory limit that went isn't told from CPU")
	}
	storage := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}}
	if !allocated.Same(storage, v1.ResourceRequirements{}) {
		t.Error("what can't be resized counts")
	}
}

func TestMostAllowsBoth(t *testing.T) {
	allocation := func(r v1.ResourceRequirements) *pod.Allocation {
		return &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"c": r}, Pod: &r}
	}
	for _, c := range []struct{ a, b, want v1.ResourceRequirements }{
		{amounts("1", "2"), amounts("2", "3"), amounts("2", "3")},
		{amounts("2", "3"), amounts("1", "2"), amounts("2", "3")},
		{amounts("2", "3"), amounts("1", ""), amounts("2", "")},
		{amounts("1", ""), amounts("2", "3"), amounts("2", "")},
		{amounts("", "2"), amounts("1", "1"), amounts("1", "2")},
	} {
		got := allocated.Most(allocation(c.a), allocation(c.b))
		if !allocated.Same(got.Containers["c"], c.want) || !allocated.Same(*got.Pod, c.want) {
			t.Errorf("the most of %v and %v is %v", c.a, c.b, got.Containers["c"])
		}
		if !allocated.Same(c.a, allocation(c.a).Containers["c"]) {
			t.Error("its operands were changed")
		}
	}
	// A pod that had nothing as a whole, and is given a limit below what a container had.
	before := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"c": amounts("1", "2")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	if got := allocated.PodLimits(p, allocated.Most(before, allocation(amounts("1", "1")))); got.CPULimitMilli != 2000 {
		t.Errorf("the pod's group would allow %dm of CPU, where a container in it has 2000m", got.CPULimitMilli)
	}
	only := allocated.Most(&pod.Allocation{Containers: map[string]v1.ResourceRequirements{"gone": amounts("1", "1")}}, allocation(amounts("1", "2")))
	if len(only.Containers) != 1 {
		t.Errorf("a container that isn't granted anything any more counts: %v", only.Containers)
	}
}
