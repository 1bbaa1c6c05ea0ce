package admission

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// Pressure says which of a node's conditions MemoryPressure, DiskPressure and PIDPressure are true
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions).
type Pressure struct{ Memory, Disk, PIDs bool }

// conditions returns the types of the conditions that are true. With several, the kubelet's order is random.
func (p Pressure) conditions() []string {
	var list []string
	for _, c := range [...]struct {
		holds bool
		kind  v1.NodeConditionType
	}{{p.Memory, v1.NodeMemoryPressure}, {p.Disk, v1.NodeDiskPressure}, {p.PIDs, v1.NodePIDPressure}} {
		if c.holds {
			list = append(list, string(c.kind))
		}
	}
	return list
}

// keepsOut returns why the node's Pressure keeps the pod out; nil if it doesn't. Memory pressure alone keeps out only
// pods that request nothing and don't tolerate it
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-nodes-by-condition).
//
// In a cluster the pod is rejected: its controller creates another pod, which the scheduler places elsewhere. Without a
// cluster nothing would create the pod again, so it waits until the pressure ends.
func (n *Node) keepsOut(p *v1.Pod) *pod.Failure {
	if n.Pressure == (Pressure{}) || allocated.ExemptFromPressure(p, n.InCluster) {
		return nil
	}
	taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
	if n.Pressure == (Pressure{Memory: true}) && (p.Status.QOSClass != v1.PodQOSBestEffort ||
		corev1.TolerationsTolerateTaint(logr.Discard(), p.Spec.Tolerations, &taint, true)) {
		return nil
	}
	conditions := n.Pressure.conditions()
	if !n.InCluster {
		return &pod.Failure{Wait: pod.WaitForPressure,
			Message: "the end of the node's " + strings.Join(conditions, ", ")}
	}
	return &pod.Failure{Reason: pod.ReasonEvicted, Rejected: true,
		Message: fmt.Sprintf("The node had condition: %v. ", conditions)}
}
