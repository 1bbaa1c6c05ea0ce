// Package allocated has functions on the resources that a node has allocated to a pod (KEP-1287). The functions compare
// and combine allocations, and compute the settings of control groups from them, in the kernel's units: weights,
// quotas, shares of swap, throttling marks, names of huge-page sizes. The package is pure.
package allocated

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Of returns the allocation of the resources that the pod's spec requests. The allocation shares its lists with the
// spec.
func Of(p *v1.Pod) *pod.Allocation {
	a := &pod.Allocation{
		Generation: p.Generation,
		Containers: make(map[string]v1.ResourceRequirements, len(p.Spec.InitContainers)+len(p.Spec.Containers)),
		Pod:        p.Spec.Resources,
		Overhead:   p.Spec.Overhead,
		Total:      helpers.PodRequests(p, helpers.PodResourcesOptions{}),
	}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = list[i].Resources
		}
	}
	return a
}

// Equal reports whether two allocations have the same amounts, even if these are written differently ("1" and "1000m")
// or the generations differ. Only requests and limits are compared: claims can't be resized, and overhead and total
// follow from the requests and limits. Pod-level resources without any amount count as none.
func Equal(a, b *pod.Allocation) bool {
	if a == nil || b == nil {
		return a == b
	}
	return samePod(a.Pod, b.Pod) &&
		maps.EqualFunc(a.Containers, b.Containers, func(x, y v1.ResourceRequirements) bool { return same(&x, &y) })
}

// Apply returns the pod with its allocated resources. If a is nil, or if these resources equal those in the spec, the
// result is p itself. Otherwise it is a copy that shares everything except resources with p. Containers that a doesn't
// list keep the resources of their spec. For overhead see KeepOverhead.
func Apply(p *v1.Pod, a *pod.Allocation) *v1.Pod {
	if a == nil {
		return p
	}
	p = KeepOverhead(p, a)
	if has(p, a) {
		return p
	}
	applied := *p
	applied.Spec.Resources = a.Pod
	applied.Spec.InitContainers = withAllocated(p.Spec.InitContainers, a)
	applied.Spec.Containers = withAllocated(p.Spec.Containers, a)
	return &applied
}

// KeepOverhead returns the pod with its allocated overhead if its spec has no overhead: a running pod still uses the
// overhead. The spec has none if the pod's RuntimeClass was removed, or wasn't read yet after a restart of the agent.
// In a cluster, too, a pod keeps its overhead when its RuntimeClass is removed.
func KeepOverhead(p *v1.Pod, a *pod.Allocation) *v1.Pod {
	if len(p.Spec.Overhead) > 0 || len(a.Overhead) == 0 {
		return p
	}
	keeping := *p
	keeping.Spec.Overhead = a.Overhead
	return &keeping
}

// has reports whether the resources in the pod's spec equal the allocated ones.
func has(p *v1.Pod, a *pod.Allocation) bool {
	if !samePod(p.Spec.Resources, a.Pod) {
		return false
	}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if r, ok := a.Containers[list[i].Name]; ok && !same(&list[i].Resources, &r) {
				return false
			}
		}
	}
	return true
}

func withAllocated(list []v1.Container, a *pod.Allocation) []v1.Container {
	out := append([]v1.Container(nil), list...)
	for i := range out {
		if r, ok := a.Containers[out[i].Name]; ok {
			out[i].Resources.Requests, out[i].Resources.Limits = r.Requests, r.Limits
		}
	}
	return out
}

func samePod(a, b *v1.ResourceRequirements) bool {
	none := &v1.ResourceRequirements{}
	return same(cmp.Or(a, none), cmp.Or(b, none))
}

func same(a, b *v1.ResourceRequirements) bool {
	return SameList(a.Requests, b.Requests) && SameList(a.Limits, b.Limits)
}

// SameList reports whether two lists have the same amounts, even if these are written differently ("1" and "1000m").
func SameList(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}
