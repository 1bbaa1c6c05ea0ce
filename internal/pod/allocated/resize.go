package allocated

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// resizable are the resources that a resize may change (KEP-1287, KEP-5419).
var resizable = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// Changed reports whether a and b differ in CPU, and whether they differ in memory.
func Changed(a, b v1.ResourceRequirements) (cpu, memory bool) {
	return differ(a, b, v1.ResourceCPU), differ(a, b, v1.ResourceMemory)
}

// Same reports whether a and b have the same requests and limits of CPU and memory.
func Same(a, b v1.ResourceRequirements) bool {
	cpu, memory := Changed(a, b)
	return !cpu && !memory
}

func differ(a, b v1.ResourceRequirements, name v1.ResourceName) bool {
	return !equal(a.Requests, b.Requests, name) || !equal(a.Limits, b.Limits, name)
}

func equal(a, b v1.ResourceList, name v1.ResourceName) bool {
	x, inA := a[name]
	y, inB := b[name]
	return inA == inB && x.Cmp(y) == 0
}

// Most returns an allocation that allows everything that a or b allows: for CPU and memory, it has the greater of both
// requests and the greater of both limits. A missing limit counts as the greatest limit.
func Most(a, b *pod.Allocation) *pod.Allocation {
	m := &pod.Allocation{Generation: b.Generation,
		Containers: make(map[string]v1.ResourceRequirements, len(b.Containers)), Pod: b.Pod, Overhead: b.Overhead}
	for name, r := range b.Containers {
		if s, ok := a.Containers[name]; ok {
			r = most(s, r)
		}
		m.Containers[name] = r
	}
	if b.Pod != nil {
		var before v1.ResourceRequirements // a resize may add pod-level resources
		if a.Pod != nil {
			before = *a.Pod
		}
		whole := most(before, *b.Pod)
		m.Pod = &whole
	}
	return m
}

func most(a, b v1.ResourceRequirements) v1.ResourceRequirements {
	r := *b.DeepCopy()
	for _, name := range resizable {
		if q, ok := greater(a.Requests, b.Requests, name); ok {
			r.Requests = set(r.Requests, name, q)
		}
	}
	r.Limits = MostLimits(a.Limits, r.Limits)
	return r
}

// MostLimits returns the limits b with the greater of the limits a and b for CPU and memory. If a or b has no limit for
// CPU or memory, the result has none for it either.
func MostLimits(a, b v1.ResourceList) v1.ResourceList {
	l := b.DeepCopy()
	for _, name := range resizable {
		x, inA := a[name]
		y, inB := b[name]
		switch {
		case inA && inB && x.Cmp(y) > 0:
			l[name] = x
		case !inA && inB:
			delete(l, name)
		}
	}
	return l
}

func greater(a, b v1.ResourceList, name v1.ResourceName) (resource.Quantity, bool) {
	x, ok := a[name]
	y, inB := b[name]
	return x, ok && (!inB || x.Cmp(y) > 0)
}

func set(l v1.ResourceList, name v1.ResourceName, q resource.Quantity) v1.ResourceList {
	if l == nil {
		l = v1.ResourceList{}
	}
	l[name] = q
	return l
}
