package podobject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// urgency is how soon a status has to be sent; the greatest goes first.
type urgency int

const (
	// detail is the urgency of other changes, which wait so that further changes are sent with them.
	detail urgency = iota
	// readiness is the urgency of a change of phase or readiness. It is sent immediately: traffic or a controller
	// depends on it.
	readiness
	// terminal is the urgency of a pod's end: the pod's name and resources become free then.
	terminal
)

// statusEquality compares statuses with the precision of the API: times to the second.
func statusEquality() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }); err != nil {
		return equality.Semantic // then some patches are sent that aren't needed
	}
	return e
}

// owned returns the part of status that the agent owns, and other conditions that the agent may write (mayWrite).
// status is either api, the status at the API server, or ours, the agent's status.
func owned(status, api, ours *v1.PodStatus) *v1.PodStatus {
	s := withoutOthers(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; apistatus.Ours(c.Type) || mayWrite(api, ours, c.Type) {
			s.Conditions = append(s.Conditions, *c)
		}
	}
	return sorted(s)
}

// mayWrite reports whether the agent writes a condition that others may write, too. It writes PodScheduled if the
// object doesn't have it, and DisruptionTarget if this agent ended the pod and no other client had set the condition.
func mayWrite(api, ours *v1.PodStatus, t v1.PodConditionType) bool {
	there, c := pod.Condition(api, t), pod.Condition(ours, t)
	switch {
	case c == nil:
		return false
	case t == v1.PodScheduled:
		return there == nil
	case t == v1.DisruptionTarget:
		return c.Reason == v1.PodReasonTerminationByKubelet &&
			(there == nil || there.Status != v1.ConditionTrue || there.Reason == c.Reason)
	}
	return false
}

// withoutOthers is a status without conditions, and without the fields of other writers.
func withoutOthers(s *v1.PodStatus) *v1.PodStatus {
	o := *s
	o.Conditions, o.NominatedNodeName, o.ResourceClaimStatuses, o.ExtendedResourceClaimStatus,
		o.NodeAllocatableResourceClaimStatuses = nil, "", nil, nil, nil
	return &o
}

func sorted(s *v1.PodStatus) *v1.PodStatus {
	slices.SortFunc(s.Conditions, func(a, b v1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	return s
}

// patch is the strategic merge patch of a pod's status from the state was to the state now. It holds no fields of other
// writers, and applies only to the object of this UID.
func patch(api *v1.Pod, was, now *v1.PodStatus) ([]byte, error) {
	status, err := apiclient.Difference(was, now)
	if err != nil {
		return nil, fmt.Errorf("patch of the status of pod %s: %w", pod.FullName(api), err)
	}
	if _, ok := status["conditions"]; ok { // merged by type
		var list []any
		for i := range now.Conditions {
			if c := &now.Conditions[i]; !equality.Semantic.DeepEqual(pod.Condition(was, c.Type), c) {
				list = append(list, c)
			}
		}
		for _, c := range was.Conditions {
			if pod.Condition(now, c.Type) == nil {
				list = append(list, map[string]any{"$patch": "delete", "type": c.Type})
			}
		}
		status["conditions"] = list
	}
	// Merged by address: replace them as a whole.
	if _, ok := status["podIPs"]; ok {
		status["podIPs"] = replaced(now.PodIPs)
	}
	if _, ok := status["hostIPs"]; ok {
		status["hostIPs"] = replaced(now.HostIPs)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": api.UID}, "status": status})
}

func replaced[T any](list []T) []any {
	all := []any{map[string]string{"$patch": "replace"}}
	for _, e := range list {
		all = append(all, e)
	}
	return all
}

// urgent returns how soon a status has to be sent: was is the status at the API server, now is the agent's.
func urgent(was, now *v1.PodStatus) urgency {
	over := pod.Terminal(now.Phase) != ""
	switch {
	case over && (was.Phase != now.Phase || !slices.EqualFunc(states(was), states(now), sameState)):
		return terminal
	case was.Phase != now.Phase || ready(was) != ready(now):
		return readiness
	}
	return detail
}

// onlyStarts reports whether statuses differ only in the progress of a pod in which no container has started: its
// sandbox and address, and its waiting containers.
func onlyStarts(was, now *v1.PodStatus, equal conversion.Equalities) bool {
	if !starting(was) || !starting(now) {
		return false
	}
	o := *now
	o.PodIP, o.PodIPs, o.InitContainerStatuses, o.ContainerStatuses = was.PodIP, was.PodIPs, was.InitContainerStatuses,
		was.ContainerStatuses
	o.Conditions = slices.Clone(now.Conditions)
	for i := range o.Conditions {
		if c := &o.Conditions[i]; c.Type == v1.PodReadyToStartContainers {
			if before := pod.Condition(was, c.Type); before != nil {
				*c = *before
			}
		}
	}
	return equal.DeepEqual(was, &o)
}

// starting reports whether no container has started yet, and none has failed to start.
func starting(s *v1.PodStatus) bool {
	all := states(s)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c v1.ContainerStatus) bool {
		w := c.State.Waiting
		return w == nil || w.Reason != string(pod.ReasonContainerCreating) &&
			w.Reason != string(pod.ReasonPodInitializing) || w.Message != "" || c.RestartCount > 0
	})
}

// states are the statuses of all containers.
func states(s *v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// sameState reports whether a container has ended in neither status, or in both with the same result.
func sameState(a, b v1.ContainerStatus) bool {
	end := func(s *v1.ContainerStatus) v1.ContainerStateTerminated {
		if t := s.State.Terminated; t != nil {
			return v1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason, ContainerID: t.ContainerID}
		}
		return v1.ContainerStateTerminated{}
	}
	return a.Name == b.Name && (a.State.Terminated == nil) == (b.State.Terminated == nil) && end(&a) == end(&b)
}

func ready(s *v1.PodStatus) bool {
	c := pod.Condition(s, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

// ofMirror returns a static pod's status for its mirror pod. It omits observed generations: these count the manifest's
// changes, not the API object's.
func ofMirror(s *v1.PodStatus) *v1.PodStatus {
	o := *s
	o.ObservedGeneration, o.Conditions = 0, slices.Clone(s.Conditions)
	for i := range o.Conditions {
		o.Conditions[i].ObservedGeneration = 0
	}
	return &o
}
