package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Waiting reasons of the API, as kubectl and everybody's dashboards know them.
const (
	waitingContainerCreating = "ContainerCreating"
	waitingPodInitializing   = "PodInitializing"
	waitingCrashLoop         = "CrashLoopBackOff"
	waitingImagePullBackOff  = "ImagePullBackOff"
)

// status builds the pod's API status from this decision.
func (d *decider) status() *v1.PodStatus {
	p := d.in.Pod
	if d.mem.StartTime.IsZero() {
		d.mem.StartTime = d.startTime()
	}
	start := metav1.NewTime(d.mem.StartTime)
	st := &v1.PodStatus{
		StartTime:          &start,
		ObservedGeneration: p.Generation,
		QOSClass:           p.Status.QOSClass,
	}
	for _, ip := range d.in.Node.HostIPs {
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	d.podIPs(st)
	initialized := d.initialized()
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		st.InitContainerStatuses = append(st.InitContainerStatuses, d.containerStatus(c, roleOf(c), initialized))
	}
	for i := range p.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, d.containerStatus(&p.Spec.Containers[i], roleMain, initialized))
	}
	st.Phase = d.phase(st, initialized)
	d.conditions(st, initialized)
	d.mem.Status = st
	return st
}

// startTime is when this node first saw the pod. A static pod carries that in an
// annotation, so it stays the same across restarts of the agent.
func (d *decider) startTime() time.Time {
	if seen, ok := d.in.Pod.Annotations[pod.AnnotationConfigSeen]; ok {
		if t, err := time.Parse(time.RFC3339, seen); err == nil {
			return t
		}
	}
	t := d.in.Now
	for _, sb := range d.sandboxes() {
		if sb.CreatedAt.Before(t) {
			t = sb.CreatedAt
		}
	}
	return t
}

func (d *decider) podIPs(st *v1.PodStatus) {
	if d.in.Pod.Spec.HostNetwork {
		for _, ip := range st.HostIPs {
			st.PodIPs = append(st.PodIPs, v1.PodIP(ip))
		}
	} else if d.sandbox != nil && !d.mem.Stopped[d.sandbox.ID] {
		for _, ip := range d.sandbox.IPs {
			st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
		}
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

// initialized reports whether every init container has succeeded (in this
// sandbox, or for good) and every sidecar before it started.
func (d *decider) initialized() bool {
	if d.mem.Terminal == v1.PodSucceeded || d.sandbox != nil && d.pastInit() {
		return true
	}
	for i := range d.in.Pod.Spec.InitContainers {
		c := &d.in.Pod.Spec.InitContainers[i]
		inst := d.current(c.Name)
		if inst == nil {
			return false
		}
		if roleOf(c) == roleSidecar && inst.State != pod.ContainerRunning ||
			roleOf(c) == roleInit && !(inst.Ended() && exitCode(inst) == 0) {
			return false
		}
	}
	return true
}

// phase follows the API's description of PodPhase.
func (d *decider) phase(st *v1.PodStatus, initialized bool) v1.PodPhase {
	if d.finished {
		return d.terminal
	}
	if d.in.Stop != nil {
		if last := d.mem.Status; last != nil && (last.Phase == v1.PodSucceeded || last.Phase == v1.PodFailed) {
			return last.Phase
		}
		if ph, ok := d.endPhase(st); ok {
			return ph
		}
	}
	if !initialized {
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

// endPhase is that of a pod that was stopped and has no running container left.
func (d *decider) endPhase(st *v1.PodStatus) (v1.PodPhase, bool) {
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

func (d *decider) conditions(st *v1.PodStatus, initialized bool) {
	var notReady []string
	for i := range st.ContainerStatuses {
		if !st.ContainerStatuses[i].Ready {
			notReady = append(notReady, st.ContainerStatuses[i].Name)
		}
	}
	for i := range st.InitContainerStatuses {
		if c := &d.in.Pod.Spec.InitContainers[i]; roleOf(c) == roleSidecar && !st.InitContainerStatuses[i].Ready {
			notReady = append(notReady, c.Name)
		}
	}
	network := v1.ConditionFalse
	if d.sandbox != nil && !d.mem.Stopped[d.sandbox.ID] {
		network = v1.ConditionTrue
	}
	d.condition(st, v1.PodReadyToStartContainers, network, "", "")
	if initialized {
		reason := ""
		if st.Phase == v1.PodSucceeded {
			reason = "PodCompleted"
		}
		d.condition(st, v1.PodInitialized, v1.ConditionTrue, reason, "")
	} else {
		d.condition(st, v1.PodInitialized, v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status")
	}
	ready, reason, message := v1.ConditionTrue, "", ""
	switch {
	case st.Phase == v1.PodSucceeded:
		ready, reason = v1.ConditionFalse, "PodCompleted"
	case st.Phase == v1.PodFailed:
		ready, reason = v1.ConditionFalse, "PodFailed"
	case len(notReady) > 0:
		ready, reason, message = v1.ConditionFalse, "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", notReady)
	}
	d.condition(st, v1.PodReady, ready, reason, message)
	d.condition(st, v1.ContainersReady, ready, reason, message)
	d.condition(st, v1.PodScheduled, v1.ConditionTrue, "", "")
}

// condition adds a condition, keeping its transition time while its status stays.
func (d *decider) condition(st *v1.PodStatus, typ v1.PodConditionType, status v1.ConditionStatus, reason, message string) {
	c := v1.PodCondition{Type: typ, Status: status, Reason: reason, Message: message,
		ObservedGeneration: st.ObservedGeneration, LastTransitionTime: metav1.NewTime(d.in.Now)}
	if last := d.mem.Status; last != nil {
		for i := range last.Conditions {
			if old := &last.Conditions[i]; old.Type == typ && old.Status == status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	st.Conditions = append(st.Conditions, c)
}
