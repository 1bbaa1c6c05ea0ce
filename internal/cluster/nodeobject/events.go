package nodeobject

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// statusEvents returns the events of a status update: was is the object before it, now the object after it.
func statusEvents(was, now *v1.Node) []pod.Event {
	var list []pod.Event
	if before, boot := was.Status.NodeInfo.BootID, now.Status.NodeInfo.BootID; before != "" && boot != before {
		list = append(list, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonRebooted,
			Message: fmt.Sprintf("Node %s has been rebooted, boot id: %s", now.Name, boot)})
	}
	before, ready := readiness(&was.Status), readiness(&now.Status)
	if before == "" || ready == before {
		return list
	}
	reason := pod.ReasonNodeNotReady
	if ready == v1.ConditionTrue {
		reason = pod.ReasonNodeReady
	}
	return append(list, statusIsNow(now.Name, reason))
}

// cordoned returns the event of a change of spec.unschedulable; happened is false if it hasn't changed. A node
// that was unknown (nil) counts as schedulable.
func cordoned(was, now *v1.Node) (e pod.Event, happened bool) {
	before := was != nil && was.Spec.Unschedulable
	switch {
	case now == nil || now.Spec.Unschedulable == before:
		return pod.Event{}, false
	case before:
		return statusIsNow(now.Name, pod.ReasonNodeSchedulable), true
	}
	return statusIsNow(now.Name, pod.ReasonNodeNotSchedulable), true
}

func statusIsNow(node string, reason pod.Reason) pod.Event {
	return pod.Event{Type: v1.EventTypeNormal, Reason: reason,
		Message: fmt.Sprintf("Node %s status is now: %s", node, reason)}
}
