package admission

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// qos ranks the QoS classes; pods of the lowest rank are preempted first.
func qos(p *v1.Pod) int {
	return slices.Index([]v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed},
		p.Status.QOSClass)
}

// Preempted is the termination of a pod that has to end because a pod of higher priority needs its resources. The pod
// keeps its own grace period, and its phase follows from its containers' exit codes, as with the kubelet (Kubernetes'
// node e2e suite, CriticalPod).
func Preempted(at time.Time) *pod.PodTermination {
	return &pod.PodTermination{At: at, Reason: pod.ReasonPreempting,
		Message: "Preempted in order to admit critical pod", ByExit: true, Disruption: true}
}

// victim is a pod that may be preempted.
type victim struct {
	*Held
	// gives is the amount of each missing resource that the victim releases.
	gives []int64
	// helps and size are the sums of gives, as fractions of the missing amounts. In helps, each resource counts as at
	// most 1.
	helps, size float64
}

// preempt chooses the pods that have to end so that the pod p fits, and marks them as ending. It chooses only pods of
// lower priority, and none for a pod with preemptionPolicy Never. As with the kubelet, pods of the lowest QoS class end
// first; within a class, those of the lowest priority. Among equals, as few pods as possible end, then those that
// release less. The order of Add decides between the rest. preempt returns nil if all of these pods together don't
// release enough.
//
// The kubelet treats every static pod as critical, so that it may preempt other pods. Here, as everywhere else in
// Kubernetes, only the priority decides whether a pod may preempt others.
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
		if h.Ending || h.Pod == nil || pod.Priority(h.Pod) >= pod.Priority(p) {
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

// enough returns the cheapest set of candidates that releases the missing amounts.
func enough(candidates []victim, missing []int64) []victim {
	// The search spares the first candidates: the more important pods and, among equally important pods, those that
	// release less.
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
	return cmp.Or(cmp.Compare(qos(b.Pod), qos(a.Pod)), cmp.Compare(pod.Priority(b.Pod), pod.Priority(a.Pod)))
}

// mostSteps bounds the search for the best choice. It suffices to compare all sets of up to 12 pods. With more pods,
// the result spares as many as possible of the most important pods, one after the other.
const mostSteps = 1 << 13

// choice is the search for the cheapest set of candidates: the set with the fewest pods of the first rank, then of the
// next, and so on.
type choice struct {
	candidates []victim
	// rank is the rank of each candidate, from 0; after is the amount that the candidate and all later ones release
	// together.
	rank  []int
	after [][]int64
	// left is the amount still missing after the chosen victims have ended, negative where they release more; cost is
	// the number of chosen victims per rank.
	left   []int64
	chosen []victim
	cost   []int
	steps  int

	best     []victim
	bestCost []int
	bestSize float64
}

// from searches the candidates from index i on. cheaper says that the victims chosen so far already cost less than the
// best choice in an earlier rank.
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
	c.apply(&c.candidates[i], r, 1)
	c.chosen = append(c.chosen, c.candidates[i])
	c.from(i+1, cheaper)
	c.chosen = c.chosen[:len(c.chosen)-1]
	c.apply(&c.candidates[i], r, -1)
}

func (c *choice) apply(v *victim, rank, sign int) {
	for k, n := range v.gives {
		c.left[k] -= int64(sign) * n
	}
	c.cost[rank] += sign
}

// compare records the chosen set if it is better than the best so far.
func (c *choice) compare() {
	size := 0.0
	for i := range c.chosen {
		size += c.chosen[i].size
	}
	if c.best == nil || cmp.Or(slices.Compare(c.cost, c.bestCost), cmp.Compare(size, c.bestSize)) < 0 {
		c.best, c.bestCost, c.bestSize = slices.Clone(c.chosen), slices.Clone(c.cost), size
	}
}
