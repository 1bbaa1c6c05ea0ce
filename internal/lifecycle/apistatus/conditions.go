package apistatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// ours are the condition types that only a node agent writes. Other clients also write PodScheduled and
// DisruptionTarget: their conditions stay in the status unless the agent reports one of that type itself.
var ours = map[v1.PodConditionType]bool{
	v1.PodReadyToStartContainers: true, v1.PodInitialized: true, v1.ContainersReady: true, v1.PodReady: true,
	v1.PodResizePending: true, v1.PodResizeInProgress: true, v1.AllContainersRestarting: true,
}

// Ours reports whether only a node agent writes this condition type.
func Ours(t v1.PodConditionType) bool { return ours[t] }

// usualConditions is the number of conditions of a pod without special conditions.
const usualConditions = 5

func (f *Facts) addConditions(st *v1.PodStatus) {
	st.Conditions = make([]v1.PodCondition, 0, usualConditions+len(f.Pod.Status.Conditions))
	network := v1.ConditionFalse
	if f.Sandbox != nil {
		network = v1.ConditionTrue
	}
	f.addCondition(st, v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: network})
	f.addInitialized(st)
	containers := f.containersReady(st)
	f.addCondition(st, f.ready(containers))
	f.addCondition(st, containers)
	if find(f.Pod.Status.Conditions, v1.PodScheduled) == nil { // a condition from the scheduler stays as it is
		f.addCondition(st, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	}
	if f.Termination != nil && f.Termination.Disruption && pod.Terminal(st.Phase) != "" {
		f.addCondition(st, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
			Reason: v1.PodReasonTerminationByKubelet, Message: f.Termination.Message})
	}
	if f.AllRestarting {
		f.addCondition(st, v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue,
			Reason:  string(pod.ReasonRestartAllContainersStarted),
			Message: "container exited with restart policy rule"})
	} else if mayRestartAll(f.Pod) {
		f.addCondition(st, v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse})
	}
	for _, c := range [...]*v1.PodCondition{f.ResizePending, f.ResizeInProgress} {
		if c != nil {
			f.addCondition(st, *c)
		}
	}
}

// AddOthers adds the parts of the pod's status that other clients have written. st is a status that Build returned; p
// may be newer than the pod that was passed to Build.
func AddOthers(st *v1.PodStatus, p *v1.Pod) {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		switch existing := find(st.Conditions, c.Type); {
		case ours[c.Type]:
		case existing == nil:
			st.Conditions = append(st.Conditions, *c)
		case c.Type == v1.PodScheduled: // keeps the transition time that the scheduler has set
			*existing = *c
		}
	}
	if pod.Terminal(p.Status.Phase) != "" {
		st.Phase, st.Reason, st.Message = p.Status.Phase, p.Status.Reason, p.Status.Message
	}
	st.NominatedNodeName, st.ResourceClaimStatuses = p.Status.NominatedNodeName, p.Status.ResourceClaimStatuses
	st.ExtendedResourceClaimStatus, st.NodeAllocatableResourceClaimStatuses = p.Status.ExtendedResourceClaimStatus,
		p.Status.NodeAllocatableResourceClaimStatuses
}

func (f *Facts) addInitialized(st *v1.PodStatus) {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	switch {
	// Once initialized, a pod stays so while all its containers are restarted (KEP-5532).
	case f.Initialized || f.wasInitialized():
		if st.Phase == v1.PodSucceeded {
			c.Reason = string(pod.ReasonPodCompleted)
		}
	default:
		var names []string
		for i := range f.Containers {
			m := &f.Containers[i]
			if m.Role == container.Init && !m.Succeeded() || m.Role == container.Sidecar && !m.Started {
				names = append(names, m.Spec.Name)
			}
		}
		c.Status, c.Reason = v1.ConditionFalse, string(pod.ReasonContainersNotInitialized)
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(names, " "))
	}
	f.addCondition(st, c)
}

// wasInitialized reports whether the pod was initialized and its containers are being restarted.
func (f *Facts) wasInitialized() bool {
	for i := range f.Containers {
		c := &f.Containers[i]
		if c.Role == container.Main && (c.Carried != nil && c.Newest == nil || f.AllRestarting && c.Newest != nil) {
			return true
		}
	}
	return false
}

func (f *Facts) containersReady(st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	var unready []string
	for i := range st.ContainerStatuses {
		if !st.ContainerStatuses[i].Ready {
			unready = append(unready, st.ContainerStatuses[i].Name)
		}
	}
	for i := range st.InitContainerStatuses {
		if s := &st.InitContainerStatuses[i]; !s.Ready && f.sidecar(s.Name) {
			unready = append(unready, s.Name)
		}
	}
	switch {
	case st.Phase == v1.PodSucceeded:
		c.Reason = string(pod.ReasonPodCompleted)
	case st.Phase == v1.PodFailed:
		c.Reason = string(pod.ReasonPodFailed)
	case len(unready) > 0:
		c.Reason, c.Message = string(pod.ReasonContainersNotReady),
			fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

func (f *Facts) sidecar(name string) bool {
	for i := range f.Containers {
		if m := &f.Containers[i]; m.Spec.Name == name {
			return m.Role == container.Sidecar
		}
	}
	return false
}

// ready is the condition Ready: ContainersReady and the readiness gates (KEP-580).
func (f *Facts) ready(containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, g := range f.Pod.Spec.ReadinessGates {
		switch status, ok := Gate(f.Pod, g.ConditionType); {
		case !ok:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				g.ConditionType))
		case status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s",
				g.ConditionType, status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, string(pod.ReasonReadinessGatesNotReady),
			strings.Join(closed, ", ")
	}
	return c
}

// Gate returns the status of the condition that a readiness gate of the pod names (KEP-580), and whether the
// condition exists.
func Gate(p *v1.Pod, typ v1.PodConditionType) (v1.ConditionStatus, bool) {
	if c := find(p.Status.Conditions, typ); c != nil {
		return c.Status, true
	}
	return "", false
}

// mayRestartAll reports whether a container's exit may restart the whole pod (KEP-5532).
func mayRestartAll(p *v1.Pod) bool {
	asks := func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(p.Spec.InitContainers, asks) || slices.ContainsFunc(p.Spec.Containers, asks)
}

// find returns the condition of this type; nil if there is none.
func find(list []v1.PodCondition, typ v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == typ {
			return &list[i]
		}
	}
	return nil
}

// addCondition adds a condition. If the condition's status is the same as in the last pod status, it keeps its
// transition time. An observedGeneration that isn't set becomes the pod's newest generation.
func (f *Facts) addCondition(st *v1.PodStatus, c v1.PodCondition) {
	if c.ObservedGeneration == 0 {
		c.ObservedGeneration = st.ObservedGeneration
	}
	c.LastTransitionTime = metav1.NewTime(f.since(c.Type, c.Status))
	st.Conditions = append(st.Conditions, c)
}

// since returns when the condition changed to this status. Without a previous status, such as after a restart of the
// agent, it is derived from the containers' times.
func (f *Facts) since(typ v1.PodConditionType, status v1.ConditionStatus) time.Time {
	if f.Last != nil {
		if old := find(f.Last.Conditions, typ); old != nil && old.Status == status {
			return old.LastTransitionTime.Time
		}
		return f.Now
	}
	at := f.StartTime
	if typ == v1.PodScheduled {
		return at
	}
	found := false
	for i := range f.Containers {
		if inst := f.Containers[i].Newest; inst != nil && f.Containers[i].Role != container.Ephemeral {
			found = true
			for _, t := range [...]time.Time{inst.StartedAt, inst.FinishedAt} {
				if t.After(at) {
					at = t
				}
			}
		}
	}
	if !found || at.After(f.Now) {
		return f.Now
	}
	return at
}
