package lifecycle

import "github.com/deckhand-node/deckhand/internal/pod"

// Combine makes one of several terminations of a pod; nil for none. The earliest gives the
// reason, and the nearest end counts. One without a grace leaves the pod's own. The phase follows from how the
// containers end only if all say so.
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
