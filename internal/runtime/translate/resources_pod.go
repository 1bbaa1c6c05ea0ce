package translate

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxResources returns the resources of the sandbox itself (nil for none), and those of the rest of the pod,
// for UpdatePodSandboxResources after a resize. p includes its allocated resources. An unthrottled pod has no CPU
// limit.
func SandboxResources(s *Settings, p *v1.Pod, unthrottled bool) (itself, pod *runtimeapi.LinuxContainerResources) {
	if o := p.Spec.Overhead; len(o) > 0 {
		itself = overhead(s, o)
	}
	pod = podResources(s, p)
	Assignment{NoQuota: unthrottled}.apply(pod)
	return itself, pod
}

// podResources returns the sum over the pod's containers, or the pod-level resources, without overhead. Runtimes
// that run a pod in a virtual machine size it accordingly.
func podResources(s *Settings, p *v1.Pod) *runtimeapi.LinuxContainerResources {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	limits := resourcehelper.PodLimits(p, opts)
	return quantities(s, v1.ResourceRequirements{Requests: resourcehelper.PodRequests(p, opts), Limits: limits}, limits)
}

// overhead returns the pod's overhead (KEP-688), as both request and limit.
func overhead(s *Settings, o v1.ResourceList) *runtimeapi.LinuxContainerResources {
	return quantities(s, v1.ResourceRequirements{Requests: o, Limits: o}, o)
}
