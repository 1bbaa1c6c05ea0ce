package admission

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// priority is the pod's (v1.PodSpec.Priority); without one it is 0, as that of a PriorityClass is by default.
func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// qos orders the QoS classes: those that can better do without their pods first.
func qos(p *v1.Pod) int {
	return slices.Index([]v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}, p.Status.QOSClass)
}

// Preempted is the termination of a pod that has to end for one of higher priority. It has its own grace, as
// with a kubelet.
func Preempted(at time.Time) *pod.PodTermination {
	return &pod.PodTermination{At: at, Reason: pod.ReasonPreempting, Message: "Preempted in order to admit critical pod", Disruption: true}
}

// victim is a pod that may be ended for another one.
type victim struct {
	*Held
	// helps is which part of what is missing it gives back, summed up by resource.
	helps float64
}

// preempt chooses the pods that have to end so that this one fits, and counts them as ending: pods of lower priority only, and
// none for one whose preemptionPolicy is Never. The documented order decides ("Pod Priority and
// Preemption"; for a kubelet, its package preemption): those of the lowest priority, then of the lowest QoS class, then
// the fewest. nil if all of them don't free enough. The order of Hold decides between equals.
//
// A kubelet takes every static pod for a critical one, which may preempt. Here a priority says which
// pod is more important, as everywhere else in Kubernetes.
func (j *Judge) preempt(p *v1.Pod, need Amount) []types.UID {
	if policy := p.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return nil
	}
	missing := need.Minus(j.capacity.Minus(j.staying))
	for name, n := range missing {
		if n <= 0 || need[name] <= 0 {
			delete(missing, name)
		}
	}
	var candidates []victim
	for i := range j.held {
		h := &j.held[i]
		if h.Ending || h.Pod == nil || priority(h.Pod) >= priority(p) {
			continue
		}
		c := victim{Held: h}
		for name, n := range missing {
			c.helps += min(float64(h.Amount[name])/float64(n), 1)
		}
		if c.helps > 0 {
			candidates = append(candidates, c)
		}
	}
	var uids []types.UID
	for _, v := range enough(candidates, missing) {
		uids = append(uids, v.UID)
		v.Ending = true
		for name, n := range v.Amount {
			j.staying[name] -= n
		}
	}
	return uids
}

// enough are those of the candidates that give back what is missing: none is among them that isn't needed.
func enough(candidates []victim, missing Amount) []victim {
	given := Amount{}
	count := func(v *victim, sign int64) {
		for name := range missing {
			given[name] += sign * v.Amount[name]
		}
	}
	// The more important pods are kept first, and of equals those that give back less.
	slices.SortStableFunc(candidates, func(a, b victim) int {
		return cmp.Or(cmp.Compare(priority(b.Pod), priority(a.Pod)), cmp.Compare(qos(b.Pod), qos(a.Pod)), cmp.Compare(a.helps, b.helps))
	})
	for i := range candidates {
		count(&candidates[i], 1)
	}
	if missing.Short(given) != nil {
		return nil
	}
	var chosen []victim
	for i := range candidates {
		count(&candidates[i], -1)
		if missing.Short(given) != nil {
			count(&candidates[i], 1)
			chosen = append(chosen, candidates[i])
		}
	}
	return chosen
}
