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
	return slices.Index([]v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed},
		p.Status.QOSClass)
}

// Preempted is the termination of a pod that has to end for one of higher priority. It has its own grace, and its phase
// follows from how its containers end, as with a kubelet (Kubernetes' node e2e suite, CriticalPod).
func Preempted(at time.Time) *pod.PodTermination {
	return &pod.PodTermination{At: at, Reason: pod.ReasonPreempting,
		Message: "Preempted in order to admit critical pod", ByExit: true, Disruption: true}
}

// victim is a pod that may be ended for another one.
type victim struct {
	*Held
	// gives is what of each missing resource it gives back.
	gives []int64
	// helps and size are that as parts of what is missing, summed up: size has also what is more than is missing.
	helps, size float64
}

// preempt chooses the pods that have to end so that this one fits, and counts them as ending: pods of lower priority
// only, and none for one whose preemptionPolicy is Never. As with a kubelet those of the lowest QoS class end first; of
// these, those of the lowest priority, then the fewest, then those that give back less. nil if all of them don't free
// enough. The order of Hold decides between equals.
//
// A kubelet takes every static pod for a critical one, which may preempt. Here a priority says which pod may
// preempt, as everywhere else in Kubernetes.
func (j *Judge) preempt(p *v1.Pod, need Amount) []types.UID {
	if policy := p.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return nil
	}
	var names []v1.ResourceName
	var missing []int64
	free := j.capacity.Minus(j.staying)
	for _, name := range need.Short(free) {
		names, missing = append(names, name), append(missing, need[name]-free[name])
	}
	var candidates []victim
	for i := range j.held {
		h := &j.held[i]
		if h.Ending || h.Pod == nil || priority(h.Pod) >= priority(p) {
			continue
		}
		c := victim{Held: h, gives: make([]int64, len(names))}
		for k, name := range names {
			c.gives[k] = h.Amount[name]
			part := float64(c.gives[k]) / float64(missing[k])
			c.helps += min(part, 1)
			c.size += part
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

// enough are those of the candidates that give back what is missing and cost least.
func enough(candidates []victim, missing []int64) []victim {
	// The more important pods are kept first, and of equals those that give back less.
	slices.SortStableFunc(candidates, func(a, b victim) int {
		return cmp.Or(byRank(a, b), cmp.Compare(a.helps, b.helps))
	})
	c := choice{candidates: candidates, rank: make([]int, len(candidates)), after: make([][]int64, len(candidates)+1),
		left: slices.Clone(missing), steps: mostSteps}
	c.after[len(candidates)] = make([]int64, len(missing))
	for i, v := range slices.Backward(candidates) {
		c.after[i] = slices.Clone(c.after[i+1])
		for k, n := range v.gives {
			c.after[i][k] += n
		}
	}
	ranks := 0
	for i := range candidates {
		if i == 0 || byRank(candidates[i-1], candidates[i]) != 0 {
			ranks++
		}
		c.rank[i] = ranks - 1
	}
	c.cost = make([]int, ranks)
	c.from(0, false)
	return c.best
}

// byRank orders victims, the more important first.
func byRank(a, b victim) int {
	return cmp.Or(cmp.Compare(qos(b.Pod), qos(a.Pod)), cmp.Compare(priority(b.Pod), priority(a.Pod)))
}

// mostSteps bounds the search for the best choice: of up to 12 pods it compares all, of more those that keep as many of
// the most important pods as can be kept one after the other.
const mostSteps = 1 << 13

// choice is the search for those of the candidates that cost least: the fewest of the first rank, then of the next, and
// so on.
type choice struct {
	candidates []victim
	// rank is that of each candidate, from 0 on; after is what it and those behind it give back.
	rank  []int
	after [][]int64
	// left is what is missing beside the chosen ones, below 0 where they give back more; cost is how many of them each
	// rank has.
	left   []int64
	chosen []victim
	cost   []int
	steps  int

	best     []victim
	bestCost []int
	bestSize float64
}

// from chooses among the candidates from the i-th on. cheaper says that the chosen ones cost less than the best choice
// in a rank before.
func (c *choice) from(i int, cheaper bool) {
	if c.steps--; c.steps < 0 && c.best != nil {
		return
	}
	for k, n := range c.left {
		if n > c.after[i][k] {
			return
		}
	}
	if slices.Max(c.left) <= 0 {
		c.compare()
		return
	}
	r := c.rank[i]
	if c.best != nil && !cheaper && i > 0 && c.rank[i-1] < r {
		switch before := c.rank[i-1]; {
		case c.cost[before] > c.bestCost[before]:
			return
		case c.cost[before] < c.bestCost[before]:
			cheaper = true
		}
	}
	c.from(i+1, cheaper)
	if c.best != nil && !cheaper && c.cost[r] >= c.bestCost[r] {
		return
	}
	c.take(&c.candidates[i], r, 1)
	c.chosen = append(c.chosen, c.candidates[i])
	c.from(i+1, cheaper)
	c.chosen = c.chosen[:len(c.chosen)-1]
	c.take(&c.candidates[i], r, -1)
}

func (c *choice) take(v *victim, rank, sign int) {
	for k, n := range v.gives {
		c.left[k] -= int64(sign) * n
	}
	c.cost[rank] += sign
}

// compare makes what is chosen the best choice if it is better.
func (c *choice) compare() {
	size := 0.0
	for i := range c.chosen {
		size += c.chosen[i].size
	}
	if c.best == nil || cmp.Or(slices.Compare(c.cost, c.bestCost), cmp.Compare(size, c.bestSize)) < 0 {
		c.best, c.bestCost, c.bestSize = slices.Clone(c.chosen), slices.Clone(c.cost), size
	}
}
