// Package apistatus builds the API status of a pod (v1.PodStatus) from facts that the core has found. It decides
// nothing.
package apistatus

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Facts are the data from which a pod's API status is built.
type Facts struct {
	Now        time.Time
	Pod        *v1.Pod
	Containers []Container
	// Sandbox is the live sandbox; nil if there is none or it was stopped.
	Sandbox *pod.Sandbox
	HostIPs []string
	// Runtime is the prefix of container IDs ("containerd").
	Runtime   string
	StartTime time.Time
	// Initialized says that all init containers have succeeded and all sidecars have started.
	Initialized bool
	// Stopping says that the pod is being removed. RequiresTerminalPhase says that it then has to end in a terminal
	// phase, even if none of its containers ran.
	Stopping, RequiresTerminalPhase bool
	// Ended says that nothing of the pod runs or is being created. Terminal is the phase in which the pod has ended
	// for good; empty before that.
	Ended    bool
	Terminal v1.PodPhase
	// Termination is why the pod has to end although its source still has it; nil if it doesn't have to.
	Termination *pod.PodTermination
	// AllRestarting says that all containers are being removed in order to be restarted (KEP-5532).
	AllRestarting bool
	// ResizePending and ResizeInProgress are the conditions of a resize; nil if they don't apply.
	ResizePending, ResizeInProgress *v1.PodCondition
	// Requests are the requests allocated to the pod as a whole; Resources are the pod-level resources in force.
	Requests  v1.ResourceList
	Resources *v1.ResourceRequirements
	// Last is the previously reported status; nil if there was none.
	Last *v1.PodStatus
}

// Container is a container with the facts of its status.
type Container struct {
	*container.Container
	// Waiting is the reason for waiting; nil for a container that runs or has terminated.
	Waiting *v1.ContainerStateWaiting
	// Passed says that this is an init container that has succeeded: later containers exist.
	Passed bool
	// RunsAgain says that the container has ended and will be restarted.
	RunsAgain bool
	// Restarts is the restart count of a container without an instance. It doesn't include the next instance, which is
	// counted once it exists.
	Restarts int
	// Carried is the termination state of the last instance if that was removed.
	Carried *v1.ContainerStateTerminated
	// Allocated are the allocated resources, Actual those in force; nil if unknown.
	Allocated, Actual *v1.ResourceRequirements
}

// Build builds the status.
func Build(f *Facts) *v1.PodStatus {
	start := metav1.NewTime(f.StartTime)
	st := &v1.PodStatus{
		StartTime:          &start,
		ObservedGeneration: f.Pod.Generation,
		QOSClass:           f.Pod.Status.QOSClass,
		AllocatedResources: f.Requests,
		Resources:          f.Resources,
	}
	containers := f.Containers
	if f.rejected() {
		containers = nil // a rejected pod never had containers
	}
	for i := range containers {
		c := &containers[i]
		s := f.container(c)
		switch c.Role {
		case container.Main:
			st.ContainerStatuses = append(st.ContainerStatuses, s)
		case container.Ephemeral:
			st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, s)
		default:
			st.InitContainerStatuses = append(st.InitContainerStatuses, s)
		}
	}
	limitMessages(st)
	st.Phase = f.phase(st)
	f.setAddresses(st)
	if f.Termination != nil && pod.Terminal(st.Phase) != "" {
		st.Reason, st.Message = string(f.Termination.Reason), f.Termination.Message
	}
	f.addConditions(st)
	return st
}

// rejected reports whether the pod has failed because this node never admitted it, or failed before any container
// status was reported.
func (f *Facts) rejected() bool {
	if pod.Terminal(f.Pod.Status.Phase) != "" && len(f.Pod.Status.ContainerStatuses) == 0 {
		return !slices.ContainsFunc(f.Containers, func(c Container) bool { return c.Newest != nil })
	}
	return f.Termination != nil && f.Termination.Rejected && f.final() != ""
}

// setAddresses sets the addresses of the node and of the pod. A terminated pod keeps its addresses, as with the
// kubelet (kubernetes/kubernetes#47806, #125404), so that traffic can be attributed later.
func (f *Facts) setAddresses(st *v1.PodStatus) {
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
	if ends := pod.Terminal(st.Phase) != "" || f.Stopping && f.RequiresTerminalPhase; ends && len(st.PodIPs) == 0 &&
		f.Last != nil {
		st.PodIPs = f.Last.PodIPs
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

// final is the terminal phase of the pod; empty until it ends. Once reported, by this agent or another client, a
// terminal phase never changes.
func (f *Facts) final() v1.PodPhase {
	reported := pod.Terminal(f.Pod.Status.Phase)
	if f.Last != nil {
		reported = cmp.Or(reported, pod.Terminal(f.Last.Phase))
	}
	return cmp.Or(reported, f.Terminal)
}

// phase follows the API's description of PodPhase.
func (f *Facts) phase(st *v1.PodStatus) v1.PodPhase {
	if ph := f.final(); ph != "" {
		return ph
	}
	if f.Stopping && f.Ended {
		if ph, ok := f.endPhase(st); ok {
			return ph
		}
	}
	if (f.Stopping || f.Termination != nil) && f.Last != nil && f.Last.Phase == v1.PodRunning {
		return v1.PodRunning // a pod that is ending doesn't go back to Pending
	}
	if !f.Initialized && !f.wasInitialized() {
		return v1.PodPending
	}
	for i := range st.ContainerStatuses {
		s := &st.ContainerStatuses[i]
		if s.State.Waiting != nil && s.LastTerminationState.Terminated == nil {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// endPhase is the phase of a pod that was stopped and of which nothing runs any more; false if not all containers
// have terminated.
func (f *Facts) endPhase(st *v1.PodStatus) (v1.PodPhase, bool) {
	phase := v1.PodSucceeded
	if f.Termination != nil && !f.Termination.ByExit {
		phase = v1.PodFailed
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
