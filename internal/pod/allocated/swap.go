package allocated

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// systemCritical is the lowest of the priorities for pods that a node or a cluster can't do without
// (https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/).
const systemCritical = 2_000_000_000

// Critical reports whether the pod has one of the priorities that Kubernetes reserves for pods that a node or a cluster
// can't do without.
func Critical(p *v1.Pod) bool {
	if p.Spec.Priority != nil {
		return *p.Spec.Priority >= systemCritical
	}
	return p.Spec.PriorityClassName == "system-node-critical" || p.Spec.PriorityClassName == "system-cluster-critical"
}

// ExemptFromPressure reports whether a node that is short of memory, disk space or process IDs admits the pod
// nevertheless, and never evicts it. As with the kubelet, that holds for critical pods, and in a cluster also for
// static and mirror pods. Without a cluster every pod is static, so that only the priority counts.
func ExemptFromPressure(p *v1.Pod, inCluster bool) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return Critical(p) || inCluster && (mirror || pod.SourceOf(p).Local())
}

// SwapRequest returns the part of the container's memory request, in bytes, that counts for its share of swap: all
// of it, or 0 if the container's memory limit equals its request or the pod is critical (KEP-2400). Only containers
// of Burstable pods may swap; the caller has to check that.
func SwapRequest(p *v1.Pod, c *v1.Container) int64 {
	request, limit := c.Resources.Requests[v1.ResourceMemory], c.Resources.Limits[v1.ResourceMemory]
	if request.Sign() <= 0 || request.Cmp(limit) == 0 || Critical(p) {
		return 0
	}
	return request.Value()
}

// podSwapRequest returns the largest sum of SwapRequest of the pod's containers that run at the same time, by the
// rules of KEP-753 for their order.
func podSwapRequest(p *v1.Pod) int64 {
	var running, most int64 // running: sum over the sidecars that run already; most: the largest sum so far
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		n := SwapRequest(p, c)
		most = max(most, running+n)
		if pod.IsSidecar(c) {
			running += n
		}
	}
	for i := range p.Spec.Containers {
		running += SwapRequest(p, &p.Spec.Containers[i])
	}
	return max(most, running)
}
