package desired

import (
	"fmt"
	"maps"
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// mergeObjects returns the objects that the sources define, and the problems of objects that two of them define.
// Precedence is the same as for pods.
func mergeObjects(order []pod.Source,
	reports map[pod.Source]Report) (defined []*object.Desired, problems []pod.Problem) {
	var claims []ObjectClaim
	for _, source := range order {
		claims = append(claims, reports[source].Objects...)
	}
	sortClaims(claims, order, func(c *ObjectClaim) precedence {
		return precedence{c.Since, c.Object.Source, c.Object.Origin, c.Document}
	})
	holders := make(map[object.Key]ObjectClaim, len(claims))
	for _, c := range claims {
		if holder, taken := holders[c.Object.Key()]; taken {
			problems = append(problems, pod.Problem{
				Source: c.Object.Source,
				Origin: c.Object.Origin,
				Message: fmt.Sprintf("%s isn't used from here: %s defines it already, and stays; %s",
					c.Object, holder.Object.Origin, choice(c.Object.Origin)),
				Since: latest(c.Since, holder.Since),
			})
			continue
		}
		holders[c.Object.Key()] = c
		defined = append(defined, c.Object)
	}
	return defined, problems
}

// refusals returns the origins of objects that can't be used; the first source takes precedence.
func refusals(order []pod.Source, reports map[pod.Source]Report) map[object.Key]string {
	all := map[object.Key]string{}
	for _, source := range slices.Backward(order) {
		maps.Copy(all, reports[source].Refused)
	}
	return all
}
