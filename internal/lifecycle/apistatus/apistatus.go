// Package apistatus tells what a pod is in the API's terms (v1.PodStatus), from
// what the core has found out about it. It decides nothing.
package apistatus

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Facts are what the core has found out.
type Facts struct {
	Now     time.Time
	Pod     *v1.Pod
	Members []Container
	// Sandbox is the live sandbox, unless it has been stopped; nil if there is none.
	Sandbox *pod.Sandbox
	HostIPs []string
	// Runtime prefixes container IDs.
	Runtime   string
	StartTime time.Time
	// Initialized says that the init containers have done their work.
	Initialized bool
	// Stopping says that the pod has to go.
	Stopping bool
	// Terminal is the phase in which the pod ends, once that is certain; Ended says
	// that nothing of it runs any more.
	Terminal v1.PodPhase
	Ended    bool
	// Ending is why the pod has to end, if it does.
	Ending *pod.Ending
	// AllRestarting says, if not empty, why all containers are being started anew (KEP-5532).
	AllRestarting string
	// ResizePending and ResizeInProgress are the conditions of a resize; nil if they don't hold.
	ResizePending, ResizeInProgress *v1.PodCondition
	// Requests are what the node has granted to the pod as a whole, Resources what
	// is in force for it.
	Requests  v1.ResourceList
	Resources *v1.ResourceRequirements
	// Last is the status told before this one; nil if there was none.
	Last *v1.PodStatus
}

// Container is one member with what the core knows of it beyond.
type Container struct {
	*member.Member
	// Waiting is why it doesn't run; nil for one that runs or has ended for good.
	Waiting *v1.ContainerStateWaiting
	// Restarts is its restart count if it has no instance.
	Restarts int
	// Carried is how its last instance ended if that was removed.
	Carried *v1.ContainerStateTerminated
	// Granted are the resources that the node has granted, Actual those in force; nil if unknown.
	Granted, Actual *v1.ResourceRequirements
}

// Build makes the status.
func Build(f *Facts) *v1.PodStatus {
	start := metav1.NewTime(f.StartTime)
	st := &v1.PodStatus{
		StartTime:          &start,
		ObservedGeneration: f.Pod.Generation,
		QOSClass:           f.Pod.Status.QOSClass,
		AllocatedResources: f.Requests,
		Resources:          f.Resources,
	}
	for i := range f.Members {
		c := &f.Members[i]
		s := f.container(c)
		switch c.Role {
		case member.Main:
			st.ContainerStatuses = append(st.ContainerStatuses, s)
		case member.Ephemeral:
			st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, s)
		default:
			st.InitContainerStatuses = append(st.InitContainerStatuses, s)
		}
	}
	limitMessages(st)
	st.Phase = f.phase(st)
	f.addresses(st)
	if f.Ending != nil {
		st.Reason, st.Message = f.Ending.Reason, f.Ending.Message
	}
	f.conditions(st)
	return st
}

// addresses fills in the node's addresses, and the pod's. A pod that is over keeps those it
// had, as with the kubelet (kubernetes/kubernetes#47806, #125404): they tell whose traffic
// was whose.
func (f *Facts) addresses(st *v1.PodStatus) {
	for _, ip := range f.HostIPs {
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	if f.Pod.Spec.HostNetwork {
		for _, ip := range st.HostIPs {
			st.PodIPs = append(st.PodIPs, v1.PodIP(ip))
		}
	} else if f.Sandbox != nil {
		for _, ip := range f.Sandbox.IPs {
			st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
		}
	}
	if over := st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed; over && len(st.PodIPs) == 0 && f.Last != nil {
		st.PodIPs = f.Last.PodIPs
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

// phase follows the API's description of PodPhase.
func (f *Facts) phase(st *v1.PodStatus) v1.PodPhase {
	if last := f.Last; last != nil && (last.Phase == v1.PodSucceeded || last.Phase == v1.PodFailed) {
		return last.Phase // a terminal phase is final
	}
	if f.Terminal != "" && f.Ended {
		return f.Terminal
	}
	if f.Stopping {
		if ph, ok := endPhase(st); ok {
			return ph
		}
	}
	if !f.Initialized || f.AllRestarting != "" {
		return v1.PodPending
	}
	for i := range st.ContainerStatuses {
		s := &st.ContainerStatuses[i]
		if s.State.Waiting != nil && (s.LastTerminationState.Terminated == nil || f.beginsAnew(s.Name)) {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// beginsAnew reports whether a container has no instance because all were removed to
// start the pod anew.
func (f *Facts) beginsAnew(name string) bool {
	for i := range f.Members {
		if c := &f.Members[i]; c.Spec.Name == name {
			return c.Carried != nil && c.Newest == nil
		}
	}
	return false
}

// endPhase is that of a pod that was stopped and has no running container left.
func endPhase(st *v1.PodStatus) (v1.PodPhase, bool) {
	phase := v1.PodSucceeded
	for i := range st.InitContainerStatuses {
		if st.InitContainerStatuses[i].State.Running != nil {
			return "", false
		}
	}
	for i := range st.ContainerStatuses {
		s := &st.ContainerStatuses[i]
		if s.State.Terminated == nil {
			return "", false
		}
		if s.State.Terminated.ExitCode != 0 {
			phase = v1.PodFailed
		}
	}
	return phase, true
}
