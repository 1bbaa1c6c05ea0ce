package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// requestsFromLimits sets each missing request to the limit of the same resource. If the limits are set but empty,
// so are the requests.
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

// roundUp rounds every quantity up to whole thousandths, the precision of the API.
func roundUp(list v1.ResourceList) {
	for name, q := range list {
		q = q.DeepCopy()
		q.RoundUp(resource.Milli)
		// The quantity is stored even if the value is the same: it may be formatted differently now, which changes a
		// static pod's UID.
		list[name] = q
	}
}

// podResources sets missing pod-level resources (KEP-2837). A missing limit of huge pages becomes the sum over the
// containers. If the pod has pod-level limits, it also sets missing requests. A missing request becomes the sum over
// the containers if any of them has the request, otherwise the pod-level limit. A missing request of huge pages, which
// can't be overcommitted, becomes the limit.
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
		if !pod.IsHugePages(name) || !resourcehelper.IsSupportedPodLevelResource(name) || requested || limited {
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
		if resourcehelper.IsSupportedPodLevelResource(name) && !pod.IsHugePages(name) {
			setRequest(r, name, q)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			setRequest(r, name, limit)
		}
	}
}
