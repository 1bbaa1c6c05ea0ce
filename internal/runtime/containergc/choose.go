// Package containergc finds what no pod's own rules remove: ended containers that are too many
// for the whole node, and logs of pods that are gone. What one container alone keeps is decided
// by package lifecycle. A pod's worker removes its containers; only the logs are removed here.
package containergc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Limits are the kubelet's flags about the ended containers of the whole node.
type Limits struct {
	// Total is --maximum-dead-containers, "Maximum number of old instances of containers to
	// retain globally"; negative for no limit. Instances that have ended count, those that
	// mustn't be removed too, so that it may be exceeded.
	Total int
	// MinAge is --minimum-container-ttl-duration: what ended less long ago is kept.
	MinAge time.Duration
}

// Choice is what is too much for the node.
type Choice struct {
	// Pods has, of pods with instances that the node keeps no longer, their IDs, sorted.
	Pods map[types.UID][]string
	// Next is when more may be chosen if nothing else happens; zero for never.
	Next time.Time
	// Over is by how many instances Total stays exceeded: they are needed, or too young.
	Over int
}

// Choose chooses among the pods of the node. Pods that nobody wants any more
// belong among them until their workers have removed them.
//
// The newest instance of a container is never chosen, whether it runs or has ended: it
// says whether the container still has to run, and when. Of the older ones, the
// containers with most of them lose theirs first, as if the limit per container came
// down for all alike (so documented of the kubelet, "Container garbage collection"); among
// equals, what ended first goes first. So what the limit per container takes anyway always
// comes before what it would leave, and Choose needn't know that limit.
func Choose(pods []*pod.Observed, l Limits, now time.Time) Choice {
	c := Choice{Pods: map[types.UID][]string{}}
	if l.Total < 0 {
		return c
	}
	dead, list := ended(pods)
	if dead <= l.Total {
		return c
	}
	c.Over = dead - l.Total
	slices.SortFunc(list, func(a, b old) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, o := range list[:min(c.Over, len(list))] {
		if due := o.FinishedAt.Add(l.MinAge); l.MinAge > 0 && due.After(now) {
			c.Next = sooner(c.Next, due)
			continue
		}
		c.Pods[o.uid] = append(c.Pods[o.uid], o.ID)
		c.Over--
	}
	for _, ids := range c.Pods {
		slices.Sort(ids)
	}
	return c
}

// old is an instance that has ended and has a newer one.
type old struct {
	*pod.Container
	uid types.UID
	// rank is how many newer instances its container has.
	rank int
}

// ended counts the instances that have ended, and lists the old ones.
func ended(pods []*pod.Observed) (dead int, list []old) {
	newer := map[string]int{}
	for _, o := range pods {
		clear(newer)
		for i := range o.Containers {
			c := &o.Containers[i]
			rank := newer[c.Name]
			newer[c.Name]++
			if !c.Ended() {
				continue
			}
			dead++
			if rank > 0 {
				list = append(list, old{Container: c, uid: o.UID, rank: rank})
			}
		}
	}
	return dead, list
}

// sooner is the earlier of two times of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
