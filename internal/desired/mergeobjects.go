package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// mergeObjects returns the objects that the sources define, and the problems that come
// of two defining the same. Whose is used follows from the claims as with pods.
func mergeObjects(order []pod.Source, reports map[pod.Source]Report) (defined []*objects.Desired, problems []pod.Problem) {
	var claims []ObjectClaim
	rank := make(map[pod.Source]int, len(order))
	for i, source := range order {
		rank[source] = i
		claims = append(claims, reports[source].Objects...)
	}
	slices.SortFunc(claims, func(a, b ObjectClaim) int {
		return cmp.Or(
			a.Since.Compare(b.Since),
			cmp.Compare(rank[a.Object.Source], rank[b.Object.Source]),
			cmp.Compare(a.Object.Origin, b.Object.Origin),
			cmp.Compare(a.Document, b.Document),
		)
	})
	holders := make(map[objects.Key]ObjectClaim, len(claims))
	for _, c := range claims {
		if holder, taken := holders[c.Object.Key()]; taken {
			problems = append(problems, pod.Problem{
				Source: c.Object.Source,
				Origin: c.Object.Origin,
				Message: fmt.Sprintf("%s isn't used from here: %s defines it already, and stays; rename or remove one of them",
					c.Object, holder.Object.Origin),
				Since: latest(c.Since, holder.Since),
			})
			continue
		}
		holders[c.Object.Key()] = c
		defined = append(defined, c.Object)
	}
	return defined, problems
}

// refusals returns where manifests define objects that can't be used; the first source's word counts.
func refusals(order []pod.Source, reports map[pod.Source]Report) map[objects.Key]string {
	all := map[objects.Key]string{}
	for _, source := range slices.Backward(order) {
		maps.Copy(all, reports[source].Refused)
	}
	return all
}
