package apistatus

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
)

// ours are the conditions that a node agent writes; all others belong to others.
var ours = map[v1.PodConditionType]bool{
	v1.PodScheduled: true, v1.PodReadyToStartContainers: true, v1.PodInitialized: true, v1.ContainersReady: true, v1.PodReady: true,
	v1.DisruptionTarget: true, v1.PodResizePending: true, v1.PodResizeInProgress: true, v1.AllContainersRestarting: true,
}

func (f *Facts) conditions(st *v1.PodStatus) {
	network := v1.ConditionFalse
	if f.Sandbox != nil {
		network = v1.ConditionTrue
	}
	f.condition(st, v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: network})
	f.initialized(st)
	containers := f.containersReady(st)
	f.condition(st, f.ready(containers))
	f.condition(st, containers)
	f.condition(st, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	if f.Ending != nil && f.Ending.Disruption {
		f.condition(st, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: f.Ending.Message})
	}
	if f.AllRestarting != "" {
		f.condition(st, v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited", Message: f.AllRestarting})
	} else if f.had(v1.AllContainersRestarting) {
		f.condition(st, v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse})
	}
	for _, c := range [...]*v1.PodCondition{f.ResizePending, f.ResizeInProgress} {
		if c != nil {
			f.condition(st, *c)
		}
	}
	for i := range f.Pod.Status.Conditions {
		if c := &f.Pod.Status.Conditions[i]; !ours[c.Type] {
			st.Conditions = append(st.Conditions, *c)
		}
	}
}

func (f *Facts) initialized(st *v1.PodStatus) {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	switch {
	// Once initialized, a pod stays so while its containers are started anew (KEP-5532).
	case f.Initialized || f.wasInitialized():
		if st.Phase == v1.PodSucceeded {
			c.Reason = "PodCompleted"
		}
	default:
		var names []string
		for i := range f.Members {
			m := &f.Members[i]
			if m.Role == member.Init && !m.Succeeded() || m.Role == member.Sidecar && !m.Started {
				names = append(names, m.Spec.Name)
			}
		}
		c.Status, c.Reason = v1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(names, " "))
	}
	f.condition(st, c)
}

// wasInitialized reports whether the containers of a pod that was initialized are
// being started anew.
func (f *Facts) wasInitialized() bool {
	for i := range f.Members {
		c := &f.Members[i]
		if c.Role == member.Main && (c.Carried != nil && c.Newest == nil || f.AllRestarting != "" && c.Newest != nil) {
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
		c.Reason = "PodCompleted"
	case st.Phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case len(unready) > 0:
		c.Reason, c.Message = "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

func (f *Facts) sidecar(name string) bool {
	for i := range f.Members {
		if m := &f.Members[i]; m.Spec.Name == name {
			return m.Role == member.Sidecar
		}
	}
	return false
}

// ready adds the readiness gates (KEP-580) to what the containers are.
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
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", g.ConditionType, status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	return c
}

// Gate returns the status of the condition that a readiness gate of the pod names
// (KEP-580), and whether it exists.
func Gate(p *v1.Pod, typ v1.PodConditionType) (v1.ConditionStatus, bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == typ {
			return c.Status, true
		}
	}
	return "", false
}

func (f *Facts) had(typ v1.PodConditionType) bool {
	if f.Last == nil {
		return false
	}
	for i := range f.Last.Conditions {
		if f.Last.Conditions[i].Type == typ {
			return true
		}
	}
	return false
}

// condition adds a condition, keeping its transition time while its status stays.
func (f *Facts) condition(st *v1.PodStatus, c v1.PodCondition) {
	c.ObservedGeneration = st.ObservedGeneration
	c.LastTransitionTime = metav1.NewTime(f.since(c.Type, c.Status))
	st.Conditions = append(st.Conditions, c)
}

// since is when a condition came to this status. What held before the agent was
// started is dated by the pod's containers.
func (f *Facts) since(typ v1.PodConditionType, status v1.ConditionStatus) time.Time {
	if f.Last != nil {
		for i := range f.Last.Conditions {
			if old := &f.Last.Conditions[i]; old.Type == typ && old.Status == status {
				return old.LastTransitionTime.Time
			}
		}
		return f.Now
	}
	at := f.StartTime
	if typ == v1.PodScheduled {
		return at
	}
	found := false
	for i := range f.Members {
		if inst := f.Members[i].Newest; inst != nil && f.Members[i].Role != member.Ephemeral {
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
