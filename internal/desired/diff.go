package desired

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Change is one pod as it is in the old set and in the new one.
type Change struct {
	Old, New *pod.Desired
}

// Changes are the differences between two sets. Pods are distinguished by UID: a static pod with a changed text is an
// Update if the edit is applied in place, and otherwise one Remove and one Add of the same name. If the manifest sets
// the UID, it is an Update in both cases, and pod.Desired.Base distinguishes them.
type Changes struct {
	// Add are the pods that only the new set has.
	Add []*pod.Desired
	// Update are pods that have to be run differently.
	Update []Change
	// Reconcile are pods that run on unchanged, but with changes in their reported data (status, origin, staleness).
	Reconcile []Change
	// Delete are pods with a new graceful deletion (deletionTimestamp).
	Delete []Change
	// Remove are pods that are gone. While the new set isn't Synced, another source may still report them: see
	// Set.Synced.
	Remove []*pod.Desired
	// BecameSynced says that the new set is Synced and the old one wasn't: now everything that the new set doesn't
	// contain may be removed, including pods of an earlier agent that were never in a set.
	BecameSynced bool
}

// Empty reports whether nothing changed for any pod.
func (c *Changes) Empty() bool {
	return len(c.Add)+len(c.Update)+len(c.Reconcile)+len(c.Delete)+len(c.Remove) == 0 && !c.BecameSynced
}

// Diff returns the changes from old to new. Either may be nil, which stands for an empty set that isn't synced. It is
// pure; pods with an unchanged pointer cost one comparison.
func Diff(old, new *Set) Changes {
	if old == nil {
		old = &Set{}
	}
	if new == nil {
		new = &Set{}
	}
	c := Changes{BecameSynced: new.Synced && !old.Synced}
	for _, now := range new.Pods {
		before := old.Get(now.Pod.UID)
		switch {
		case before == nil:
			c.Add = append(c.Add, now)
		case before == now:
		case before.Pod.DeletionTimestamp == nil && now.Pod.DeletionTimestamp != nil:
			c.Delete = append(c.Delete, Change{before, now})
		case sameWork(before, now):
			c.Reconcile = append(c.Reconcile, Change{before, now})
		default:
			c.Update = append(c.Update, Change{before, now})
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
