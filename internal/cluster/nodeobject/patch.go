package nodeobject

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// withStatus returns the object with this status. It replaces only fields that the agent owns, and keeps conditions of
// other writers. fresh says that this agent hasn't sent a status yet. A condition's transition time changes only with
// its status.
func withStatus(object *v1.Node, now *v1.NodeStatus, fresh bool) *v1.Node {
	n := object.DeepCopy()
	s := &n.Status
	s.DaemonEndpoints, s.NodeInfo, s.Images = now.DaemonEndpoints, now.NodeInfo, now.Images
	if now.Addresses != nil { // nil if a cloud controller writes them
		s.Addresses = now.Addresses
	}
	s.RuntimeHandlers, s.Features, s.DeclaredFeatures = now.RuntimeHandlers, now.Features, now.DeclaredFeatures
	s.Capacity, s.Allocatable = resources(s.Capacity, now.Capacity, fresh),
		resources(s.Allocatable, now.Allocatable, fresh)
	for _, ours := range now.Conditions {
		was := condition(s, ours.Type)
		if was == nil {
			s.Conditions = append(s.Conditions, ours)
			continue
		}
		if was.Status == ours.Status {
			ours.LastTransitionTime = was.LastTransitionTime
		}
		*was = ours
	}
	return n
}

func condition(s *v1.NodeStatus, kind v1.NodeConditionType) *v1.NodeCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// patch is the strategic merge patch from the object was to the object now; nil if they are equal. It handles both
// lists that the API server merges.
func patch(was, now *v1.Node) ([]byte, error) {
	p, err := apiclient.Difference(was, now)
	if err != nil {
		return nil, fmt.Errorf("patch of node %s: %w", now.Name, err)
	}
	if len(p) == 0 {
		return nil, nil
	}
	if status, ok := p["status"].(map[string]any); ok {
		if _, ok := status["conditions"]; ok { // merged by type
			var list []v1.NodeCondition
			for _, c := range now.Status.Conditions {
				if old := condition(&was.Status, c.Type); old == nil || !equality.Semantic.DeepEqual(*old, c) {
					list = append(list, c)
				}
			}
			status["conditions"] = list
		}
		if _, ok := status["addresses"]; ok { // merged by type, but two may have one type: replace the list
			list := []any{map[string]string{"$patch": "replace"}}
			for _, a := range now.Status.Addresses {
				list = append(list, a)
			}
			status["addresses"] = list
		}
	}
	return json.Marshal(p)
}

// minGap is the shortest time between patches, unless the status of a condition has changed. amountsGap is the shortest
// time before a patch that changes allocatable resources, because schedulers wait for these. At most every second patch
// is sent after amountsGap instead of minGap: a device plugin that keeps crashing makes resources come and go.
const (
	minGap     = time.Second
	amountsGap = 100 * time.Millisecond
)

// due returns the time at which a new status, the parameter now, has to be sent. was is the last status, and sent the
// time at which it was sent. The new status is sent immediately if the status of a condition has changed, soon if
// anything else has changed, otherwise when the interval every is over. hurried says that the last status was sent
// sooner than minGap after the one before it.
func due(was, now *v1.NodeStatus, sent time.Time, hurried bool, every time.Duration) time.Time {
	switch {
	case turned(was, now):
		return sent
	case !hurried && !equality.Semantic.DeepEqual(was.Allocatable, now.Allocatable):
		return sent.Add(amountsGap)
	case changed(was, now):
		return sent.Add(minGap)
	}
	return sent.Add(every)
}

// turned reports whether a condition of the agent, such as Ready, has another status than before.
func turned(was, now *v1.NodeStatus) bool {
	return !slices.EqualFunc(was.Conditions, now.Conditions, func(a, b v1.NodeCondition) bool {
		return a.Type == b.Type && a.Status == b.Status
	})
}

func readiness(s *v1.NodeStatus) v1.ConditionStatus {
	if c := condition(s, v1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

// changed reports whether two statuses differ in anything but times.
func changed(was, now *v1.NodeStatus) bool {
	return !equality.Semantic.DeepEqual(withoutTimes(was), withoutTimes(now))
}

func withoutTimes(s *v1.NodeStatus) *v1.NodeStatus {
	c := *s
	c.Conditions = append([]v1.NodeCondition(nil), s.Conditions...)
	for i := range c.Conditions {
		c.Conditions[i].LastHeartbeatTime.Reset()
		c.Conditions[i].LastTransitionTime.Reset()
	}
	return &c
}
