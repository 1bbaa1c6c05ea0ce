package translate

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxResources are what the sandbox itself takes, nil for nothing, and what the pod beside it, for pods whose
// resources have changed (UpdatePodSandboxResources). p has what was allocated to it.
func SandboxResources(s *Settings, p *v1.Pod) (itself, pod *runtimeapi.LinuxContainerResources) {
	if o := p.Spec.Overhead; len(o) > 0 {
		itself = overhead(s, o)
	}
	return itself, podResources(s, p)
}

// podResources is the sum over the pod's containers, or what the pod has as a
// whole, without overhead. Runtimes that run a pod in a virtual machine size it by that.
func podResources(s *Settings, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	limits := resourcehelper.PodLimits(p, opts)
	return quantities(s, v1.ResourceRequirements{Requests: resourcehelper.PodRequests(p, opts), Limits: limits}, limits)
}

// overhead is what the sandbox itself takes (KEP-688), which is both asked for and the most there is.
func overhead(s *Settings, o v1.ResourceList) *runtimeapi.LinuxContainerResources {
	return quantities(s, v1.ResourceRequirements{Requests: o, Limits: o}, o)
}
