// Package containergc handles garbage beyond the rules for a single pod: ended containers above the limit for the
// whole node, and logs of deleted pods. Package lifecycle decides which old instances of one container are kept.
// This package removes only logs; pod workers remove the containers.
package containergc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Limits are the kubelet's flags for the ended containers of the whole node.
type Limits struct {
	// Total is --maximum-dead-containers, "Maximum number of old instances of containers to retain globally";
	// negative means no limit. All ended instances count, including those that mustn't be removed, so the actual
	// number can exceed it.
	Total int
	// MinAge is --minimum-container-ttl-duration: instances that ended more recently stay.
	MinAge time.Duration
}

// Choice lists the ended instances that exceed the node's limit.
type Choice struct {
	// Pods maps pods to the sorted IDs of their excess instances. Pods without excess instances aren't in it.
	Pods map[types.UID][]string
	// Next is when more instances reach MinAge; zero if none will.
	Next time.Time
	// Over is the number of instances above Total that can't be removed, because they are the newest of their
	// container or too young.
	Over int
}

// Choose selects excess instances from all pods of the node. The caller has to include deleted pods until their
// workers have removed them.
//
// The newest instance of a container, running or ended, is never chosen: it determines whether and when the
// container restarts. The other instances are chosen first from the containers with the most instances, as if the
// limit per container decreased for all containers equally (the kubelet's documentation, "Container garbage
// collection"); among equals, the instance that ended first is chosen. So an instance above the limit per container
// is always chosen before an instance within it, and Choose doesn't need to get that limit.
//
// ends has the times from which the ages of instances count (Keeper.ends). For others, FinishedAt counts.
func Choose(pods []*pod.Observed, l Limits, now time.Time, ends map[string]time.Time) Choice {
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
		end, known := ends[o.ID]
		if !known {
			end = o.FinishedAt
		}
		if due := end.Add(l.MinAge); l.MinAge > 0 && due.After(now) {
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

// old is an ended instance of a container that has a newer one.
type old struct {
	*pod.Container
	uid types.UID
	// rank is the number of newer instances of the same container.
	rank int
}

// ended counts the ended instances. list has those that have a newer instance of the same container.
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

// sooner returns the earlier of two times; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
