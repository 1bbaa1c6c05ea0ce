package worker

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// CountPods counts the desired pods, the pods and containers in the runtime (seen), and the pods with workers
// (entries). alone says that there is no API server, so that there are no mirror pods.
func CountPods(pods []*pod.Desired, seen []*pod.Observed, entries []*podstatus.Entry, alone bool) metrics.PodCounts {
	c := metrics.PodCounts{Desired: map[bool]int{}, Active: map[bool]int{}, Containers: map[pod.ContainerState]int{},
		PendingResizes: map[string]int{}, Working: map[metrics.WorkerState]int{}}
	wanted := map[types.UID]bool{}
	for _, d := range pods {
		wanted[d.Pod.UID] = true
		c.Desired[d.Source.Local()]++
	}
	for _, o := range seen {
		if len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
			c.RunningPods++
		}
		for i := range o.Containers {
			c.Containers[o.Containers[i].State]++
		}
	}
	for _, e := range entries {
		w := metrics.WorkerState{Lifecycle: "sync", Orphan: !wanted[e.Pod.UID], Static: e.Report.Desired.Source.Local()}
		switch {
		case pod.Terminal(e.Pod.Status.Phase) != "":
			w.Lifecycle = "terminated"
		case e.Report.Stopping:
			w.Lifecycle = "terminating"
		}
		c.Working[w]++
		if w.Lifecycle != "terminated" && !w.Orphan {
			c.Active[w.Static]++
		}
		if w.Static && !alone {
			c.Mirrors++ // the mirror pod exists until the pod has ended
		}
		c.EphemeralContainers += len(e.Pod.Spec.EphemeralContainers)
		for i := range e.Pod.Status.Conditions {
			switch o := &e.Pod.Status.Conditions[i]; o.Type {
			case v1.PodResizeInProgress:
				c.InProgressResizes++
			case v1.PodResizePending:
				c.PendingResizes[strings.ToLower(o.Reason)]++
			}
		}
	}
	return c
}
