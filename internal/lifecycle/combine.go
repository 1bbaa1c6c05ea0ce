package lifecycle

import "github.com/deckhand-node/deckhand/internal/pod"

// Combine merges several terminations of a pod; nil if there are none. The result has the reason of the earliest
// termination, and the earliest end (At plus Grace) of all of them. A termination without a Grace doesn't shorten
// the pod's own grace period. ByExit is set only if all terminations have it.
func Combine(terminations ...*pod.PodTermination) *pod.PodTermination {
	var first, nearest *pod.PodTermination
	byExit := true
	for _, v := range terminations {
		if v == nil {
			continue
		}
		byExit = byExit && v.ByExit
		if first == nil || v.At.Before(first.At) {
			first = v
		}
		if v.Grace != nil && (nearest == nil || v.At.Add(*v.Grace).Before(nearest.At.Add(*nearest.Grace))) {
			nearest = v
		}
	}
	if first == nil {
		return nil
	}
	combined := *first
	combined.ByExit = byExit
	if nearest != nil && nearest != first {
		grace := nearest.At.Add(*nearest.Grace).Sub(first.At)
		combined.Grace = &grace
	}
	return &combined
}
