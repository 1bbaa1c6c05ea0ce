package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// NodeShutdown is the termination of a pod whose node began to shut down at the time at. periods are
// shutdownGracePeriodByPodPriority: the pod gets the period with the highest priority that isn't above its own priority
// or, if there is none, the period with the lowest priority. The pod's own grace period applies if it is shorter
// (KEP-2000, KEP-2712).
func NodeShutdown(p *v1.Pod, at time.Time, periods []v1beta1.ShutdownGracePeriodByPodPriority) *pod.PodTermination {
	t := &pod.PodTermination{At: at, Reason: pod.ReasonTerminated,
		Message: "Pod was terminated in response to imminent node shutdown.", Disruption: true}
	priority, chosen := pod.Priority(p), -1
	for i := range periods {
		c := periods[i].Priority
		switch {
		case chosen < 0:
			chosen = i
		case c <= priority && (periods[chosen].Priority > priority || c > periods[chosen].Priority),
			c > priority && periods[chosen].Priority > c:
			chosen = i
		}
	}
	if chosen >= 0 {
		grace := pod.Seconds(periods[chosen].ShutdownGracePeriodSeconds)
		t.Grace = &grace
	}
	return t
}
