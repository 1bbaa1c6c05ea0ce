package spec

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// QOSClass returns the pod's quality of service class, computed from its spec
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/): only CPU and memory count, and pod-level resources
// take precedence over those of containers.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if r := p.Spec.Resources; r != nil && asksAny(*r) {
		return class(true, guaranteed(*r))
	}
	any, all := false, true
	for r := range allResources(p) {
		any = any || asksAny(r)
		all = all && guaranteed(r)
	}
	return class(any, all)
}

func class(any, guaranteed bool) v1.PodQOSClass {
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}

var qosResources = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// asksAny reports whether any request or limit of CPU or memory is above zero.
func asksAny(r v1.ResourceRequirements) bool {
	for _, name := range qosResources {
		if request, limit := r.Requests[name], r.Limits[name]; request.Sign() > 0 || limit.Sign() > 0 {
			return true
		}
	}
	return false
}

// guaranteed reports whether, for both CPU and memory, the limit is set and equals the request. A missing request
// counts as equal.
func guaranteed(r v1.ResourceRequirements) bool {
	for _, name := range qosResources {
		limit := r.Limits[name]
		if limit.Sign() <= 0 {
			return false
		}
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}

// allResources iterates over the resources of every container, including init containers.
func allResources(p *v1.Pod) iter.Seq[v1.ResourceRequirements] {
	return func(yield func(v1.ResourceRequirements) bool) {
		for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(list[i].Resources) {
					return
				}
			}
		}
	}
}
