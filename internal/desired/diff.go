package desired

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Changes are the differences between two sets, for reports to users. Pods are distinguished by UID. If the text of a
// static pod changes, that is an Update if the edit is applied in place, and otherwise one Remove and one Add of the
// same name. If the manifest sets the UID, a changed text is an Update in both cases, and pod.Desired.Base
// distinguishes the pods.
type Changes struct {
	// Add are the pods that only the new set has.
	Add []*pod.Desired
	// Update are pods of the new set that have to be run differently. Pods with a new graceful deletion
	// (deletionTimestamp) aren't among them.
	Update []*pod.Desired
	// Remove are pods that are gone. While the new set isn't Synced, another source may still report them: see
	// Set.Synced.
	Remove []*pod.Desired
}

// Diff returns the changes from old to new. Either may be nil, which stands for an empty set. It is pure; pods with an
// unchanged pointer cost one comparison.
func Diff(old, new *Set) Changes {
	if old == nil {
		old = &Set{}
	}
	if new == nil {
		new = &Set{}
	}
	var c Changes
	for _, now := range new.Pods {
		before := old.Get(now.Pod.UID)
		switch {
		case before == nil:
			c.Add = append(c.Add, now)
		case before == now, before.Pod.DeletionTimestamp == nil && now.Pod.DeletionTimestamp != nil:
			// Either nothing has changed, or the pod is being deleted, which its worker logs.
		case !sameWork(before, now):
			c.Update = append(c.Update, now)
		}
	}
	for _, before := range old.Pods {
		if new.Get(before.Pod.UID) == nil {
			c.Remove = append(c.Remove, before)
		}
	}
	return c
}

// sameWork reports whether two versions of a pod are run in the same way. Labels and annotations count, because
// containers can see them (downward API).
func sameWork(a, b *pod.Desired) bool {
	if a.Pod == b.Pod {
		return true
	}
	x, y := a.Pod, b.Pod
	return a.Base == b.Base &&
		equality.Semantic.DeepEqual(x.Spec, y.Spec) &&
		equality.Semantic.DeepEqual(x.Labels, y.Labels) &&
		equality.Semantic.DeepEqual(x.Annotations, y.Annotations) &&
		equality.Semantic.DeepEqual(x.DeletionTimestamp, y.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(x.DeletionGracePeriodSeconds, y.DeletionGracePeriodSeconds)
}
