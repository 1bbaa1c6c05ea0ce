package spec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// requestsFromLimits sets each request that is missing to its limit. Limits that are given and empty make requests that
// are.
func requestsFromLimits(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for name, limit := range r.Limits {
		setRequest(r, name, limit)
	}
}

func setRequest(r *v1.ResourceRequirements, name v1.ResourceName, q resource.Quantity) {
	if _, ok := r.Requests[name]; ok {
		return
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	r.Requests[name] = q.DeepCopy()
}

// roundUp brings every quantity to whole thousandths, the finest the API keeps.
func roundUp(list v1.ResourceList) {
	for name, q := range list {
		q = q.DeepCopy()
		q.RoundUp(resource.Milli)
		// also if nothing was lost: it may be written in another way now, which counts in a static pod's UID
		list[name] = q
	}
}

// podResources sets what is missing of pod-level resources (KEP-2837): limits of huge pages to the sum over the
// containers; where there are limits, requests to the
// sum over the containers where any of them has the request, else to the
// pod-level limit. Huge pages can't be overcommitted, so there the limit counts.
func podResources(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil {
		return
	}
	roundUp(r.Limits)
	roundUp(r.Requests)
	if len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	for name, q := range resourcehelper.AggregateContainerLimits(p, resourcehelper.PodResourcesOptions{}) {
		_, requested := r.Requests[name]
		_, limited := r.Limits[name]
		if !hugePages(name) || !resourcehelper.IsSupportedPodLevelResource(name) || requested || limited {
			continue
		}
		if r.Limits == nil {
			r.Limits = v1.ResourceList{}
		}
		r.Limits[name] = q
	}
	if len(r.Limits) == 0 {
		return
	}
	sum := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	for name, q := range sum {
		if resourcehelper.IsSupportedPodLevelResource(name) && !hugePages(name) {
			setRequest(r, name, q)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			setRequest(r, name, limit)
		}
	}
}

func hugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
