package nodeobject

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// pressure is the state of one of the node's three pressure conditions. The texts are the kubelet's.
type pressure struct {
	kind    v1.NodeConditionType
	status  v1.ConditionStatus
	reason  pod.Reason
	message string
	// event is the reason of the event when the condition gets this status.
	event pod.Reason
}

// pressures returns the states of the pressure conditions, in the order in which the node's object has them.
func pressures(p admission.Pressure) [3]pressure {
	list := [...]pressure{
		{v1.NodeMemoryPressure, v1.ConditionFalse, pod.ReasonKubeletHasSufficientMemory,
			"kubelet has sufficient memory available", pod.ReasonNodeHasSufficientMemory},
		{v1.NodeDiskPressure, v1.ConditionFalse, pod.ReasonKubeletHasNoDiskPressure,
			"kubelet has no disk pressure", pod.ReasonNodeHasNoDiskPressure},
		{v1.NodePIDPressure, v1.ConditionFalse, pod.ReasonKubeletHasSufficientPID,
			"kubelet has sufficient PID available", pod.ReasonNodeHasSufficientPID},
	}
	if p.Memory {
		list[0] = pressure{v1.NodeMemoryPressure, v1.ConditionTrue, pod.ReasonKubeletHasInsufficientMemory,
			"kubelet has insufficient memory available", pod.ReasonNodeHasInsufficientMemory}
	}
	if p.Disk {
		list[1] = pressure{v1.NodeDiskPressure, v1.ConditionTrue, pod.ReasonKubeletHasDiskPressure,
			"kubelet has disk pressure", pod.ReasonNodeHasDiskPressure}
	}
	if p.PIDs {
		list[2] = pressure{v1.NodePIDPressure, v1.ConditionTrue, pod.ReasonKubeletHasInsufficientPID,
			"kubelet has insufficient PID available", pod.ReasonNodeHasInsufficientPID}
	}
	return list
}

// PressureEvents returns the events of the node when its pressure changes. They don't depend on the node's object, so
// that they are the same with and without a cluster, and are recorded while the API server can't be reached, too.
func PressureEvents(node string, was, now admission.Pressure) []pod.Event {
	var list []pod.Event
	before := pressures(was)
	for i, p := range pressures(now) {
		if p.status != before[i].status {
			list = append(list, statusIsNow(node, p.event))
		}
	}
	return list
}
