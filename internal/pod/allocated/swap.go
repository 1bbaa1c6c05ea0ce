package allocated

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// systemCritical is the least priority of pods that a node or cluster can't do
// without (https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/).
const systemCritical = 2_000_000_000

// Critical reports whether the pod has one of the priorities that Kubernetes reserves for pods that a node or a cluster
// can't do without.
func Critical(p *v1.Pod) bool {
	if p.Spec.Priority != nil {
		return *p.Spec.Priority >= systemCritical
	}
	return p.Spec.PriorityClassName == "system-node-critical" || p.Spec.PriorityClassName == "system-cluster-critical"
}

// SwapRequest is the part of the container's memory request that swap goes with,
// in bytes: all of it, or nothing where the container has a limit of just what it
// requests or the pod is critical (KEP-2400). In pods that aren't Burstable no
// container may swap, which is for the caller to know.
func SwapRequest(p *v1.Pod, c *v1.Container) int64 {
	request, limit := c.Resources.Requests[v1.ResourceMemory], c.Resources.Limits[v1.ResourceMemory]
	if request.Sign() <= 0 || request.Cmp(limit) == 0 || Critical(p) {
		return 0
	}
	return request.Value()
}

// podSwapRequest is the most of SwapRequest that containers of the pod have at
// one time, by the rules of KEP-753 for their order.
func podSwapRequest(p *v1.Pod) int64 {
	var running, most int64 // sidecars that run already; the most so far
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
