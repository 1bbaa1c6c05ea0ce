package desired

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// merge makes one set of what the sources say. It is a pure function: who wins a
// contested name follows from the claims alone, whatever the order the reports
// came in. Sources are ranked by their position in order. What is as in old, which may be
// nil, has the pointers it has there.
func merge(order []pod.Source, reports map[pod.Source]Report, old *Set) *Set {
	if old == nil {
		old = &Set{}
	}
	claims, problems, synced := gather(order, reports)
	defined, more := mergeObjects(order, reports)
	problems = append(problems, more...)
	set := &Set{
		Pods:     make([]*pod.Desired, 0, len(claims)),
		Objects:  objects.NewSet(defined, synced).WithRefused(refusals(order, reports)),
		Synced:   synced,
		byUID:    make(map[types.UID]*pod.Desired, len(claims)),
		admitted: map[*pod.Desired]admission{},
	}
	if old.Objects != nil && old.Objects.Equal(set.Objects) {
		set.Objects = old.Objects
	}
	holders := make(map[string]Claim, len(claims))
	uids := make(map[types.UID]Claim, len(claims))
	for _, c := range claims {
		name, uid := pod.FullName(c.Desired.Pod), c.Desired.Pod.UID
		if holder, taken := holders[name]; taken {
			problems = append(problems, contested(c, holder, "the name"))
			continue
		}
		if holder, taken := uids[uid]; taken {
			problems = append(problems, contested(c, holder, "metadata.uid "+string(uid)))
			continue
		}
		holders[name], uids[uid] = c, c
		a := set.admit(c.Desired, old)
		if a.conflict != "" {
			problems = append(problems, conflicting(c, a.conflict))
		}
		set.byUID[uid] = a.made
		set.Pods = append(set.Pods, a.made)
	}
	slices.SortFunc(set.Pods, func(a, b *pod.Desired) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	sortProblems(problems)
	set.Problems = problems
	return set
}

// gather returns all claims, the ones with the better right first.
func gather(order []pod.Source, reports map[pod.Source]Report) (claims []Claim, problems []pod.Problem, synced bool) {
	synced = true
	rank := make(map[pod.Source]int, len(order))
	for i, source := range order {
		rank[source] = i
		r, reported := reports[source]
		synced = synced && reported && !r.Pending
		claims = append(claims, r.Claims...)
		problems = append(problems, r.Problems...)
	}
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(
			a.Since.Compare(b.Since),
			cmp.Compare(rank[a.Desired.Source], rank[b.Desired.Source]),
			cmp.Compare(a.Desired.Origin, b.Desired.Origin),
			cmp.Compare(a.Document, b.Document),
		)
	})
	return claims, problems, synced
}

// contested tells that c can't have what holder has.
func contested(c, holder Claim, what string) pod.Problem {
	name := c.Desired.Pod.Namespace + "/" + c.Desired.Pod.Name
	return pod.Problem{
		Source: c.Desired.Source,
		Origin: c.Desired.Origin,
		Pod:    name,
		Message: fmt.Sprintf("pod %s isn't run: %s is already taken by pod %s/%s of %s, which stays; rename or remove one of them",
			name, what, holder.Desired.Pod.Namespace, holder.Desired.Pod.Name, holder.Desired.Origin),
		Since: latest(c.Since, holder.Since),
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sortProblems(problems []pod.Problem) {
	slices.SortStableFunc(problems, func(a, b pod.Problem) int {
		return cmp.Or(
			cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
