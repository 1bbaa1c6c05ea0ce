package admission_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const critical = 2_000_000_000

func ranked(p *v1.Pod, priority int32, qos v1.PodQOSClass) *v1.Pod {
	p.Spec.Priority, p.Status.QOSClass = &priority, qos
	return p
}

func TestPreemption(t *testing.T) {
	full := []admission.Held{
		held(ranked(requests("guaranteed", "cpu", "1"), 0, v1.PodQOSGuaranteed)),
		held(ranked(requests("burstable", "cpu", "1"), 0, v1.PodQOSBurstable)),
		held(ranked(requests("more important", "cpu", "2"), 10, v1.PodQOSBurstable)),
	}
	for _, tc := range []struct {
		name string
		held []admission.Held
		pod  *v1.Pod
		want string
	}{
		{"the lowest QoS class first", full, ranked(requests("p", "cpu", "1"), critical, ""), "[burstable]"},
		{"within it the lowest priority", full, ranked(requests("p", "cpu", "2"), critical, ""), "[more important]"},
		{"then the next class", full, ranked(requests("p", "cpu", "4"), critical, ""), "[guaranteed more important burstable]"},
		{"its own priority stays", full, ranked(requests("p", "cpu", "3"), 10, ""), "rejected"},
		{"more than the node has", full, ranked(requests("p", "cpu", "5"), critical, ""), "rejected"},
		{"without a priority", full, requests("p", "cpu", "1"), "rejected"},
		{"that never preempts", full, with(ranked(requests("p", "cpu", "1"), critical, ""), func(s *v1.PodSpec) { s.PreemptionPolicy = ptr.To(v1.PreemptNever) }), "rejected"},
		{"a place among the pods", full, ranked(requests("p"), critical, ""), "[burstable]"},
		{"few rather than small", append(full[:1:1], held(requests("small", "cpu", "1")), held(requests("big", "cpu", "2"))), ranked(requests("p", "cpu", "2"), critical, ""), "[big]"},
		{"small rather than big", []admission.Held{held(requests("big", "cpu", "3")), held(requests("small", "cpu", "1"))}, ranked(requests("p", "cpu", "1"), critical, ""), "[small]"},
		{"one that gives back all that is missing", []admission.Held{held(requests("cpu", "cpu", "3")), held(requests("memory", "memory", "1023Mi")), held(requests("both", "cpu", "1", "memory", "1Mi"))}, ranked(requests("p", "cpu", "1", "memory", "1Mi"), critical, ""), "[both]"},
		{"what ends already counts", append(full[:1:1], ending(requests("ends", "cpu", "2")), held(requests("c", "cpu", "1"))), ranked(requests("p", "cpu", "3"), critical, ""), "[c]"},
		{"ports don't count", []admission.Held{held(port(requests("a"), "", 80, ""))}, port(ranked(requests("p"), critical, ""), "", 80, ""), "rejected"},
		{"one that nobody knows any more is left alone", []admission.Held{{UID: "unknown", Amount: admission.Need(requests("x", "cpu", "4"))}}, ranked(requests("p", "cpu", "1"), critical, ""), "rejected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newJudge(tc.held...).Admit(tc.pod, admission.Need(tc.pod))
			got := fmt.Sprint(a.Preempt)
			if a.Failure.Rejected {
				got = "rejected"
			} else if a.Failure.Wait != pod.WaitForRoom {
				t.Errorf("it waits for %q", a.Failure.Wait)
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestPreemptionOfManyByMany: no pod makes room for two others.
func TestPreemptionOfManyByMany(t *testing.T) {
	j := newJudge(held(requests("a", "cpu", "2")), held(requests("b", "cpu", "2")))
	preempted := map[types.UID]bool{}
	for _, uid := range []types.UID{"first", "second"} {
		p := ranked(requests(uid, "cpu", "2"), critical, v1.PodQOSBurstable)
		a := j.Admit(p, admission.Need(p))
		if len(a.Preempt) != 1 || preempted[a.Preempt[0]] {
			t.Errorf("for the %s %v have to end, after %v", uid, a.Preempt, preempted)
		}
		for _, victim := range a.Preempt {
			preempted[victim] = true
		}
		j.Add(held(p))
	}
	p := ranked(requests("third", "cpu", "2"), critical, v1.PodQOSBurstable)
	if a := j.Admit(p, admission.Need(p)); a.Preempt != nil || !a.Failure.Rejected {
		t.Errorf("for the third one %v have to end", a.Preempt)
	}
}

// TestPreemptionIsTheLeast compares with all there is to choose from: no other choice makes room for all that is missing and is of fewer pods of the
// highest QoS class and priority, then of the next, and so on, or of as many that have less.
func TestPreemptionIsTheLeast(t *testing.T) {
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	const priorities = 4
	rapid.Check(t, func(rt *rapid.T) {
		names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "example.com/card"}[:rapid.IntRange(1, 3).Draw(rt, "resources")]
		amounts := func(most int, of string) (list []string) {
			for _, name := range names {
				list = append(list, string(name), fmt.Sprint(rapid.IntRange(0, most).Draw(rt, of)))
			}
			return list
		}
		var pods []*v1.Pod
		var has []admission.Amount
		capacity := admission.Amount{}
		for i := range rapid.IntRange(1, 12).Draw(rt, "pods") {
			p := ranked(requests(types.UID(fmt.Sprint("p", i)), amounts(5, "has")...), int32(rapid.IntRange(0, priorities-1).Draw(rt, "priority")), rapid.SampledFrom(classes).Draw(rt, "qos"))
			pods, has = append(pods, p), append(has, admission.Need(p))
			for _, name := range names {
				capacity[name] += has[i][name]
			}
		}
		inUse := maps.Clone(capacity)
		for _, name := range names {
			capacity[name] += int64(rapid.IntRange(0, 2).Draw(rt, "free")) * admission.AmountOf(v1.ResourceList{name: resource.MustParse("1")})[name]
		}
		j := admission.NewJudge(&admission.Node{}, capacity)
		for _, p := range pods {
			j.Add(held(p))
		}
		asks := ranked(requests("new", amounts(12, "asks")...), int32(rapid.IntRange(0, priorities).Draw(rt, "its priority")), v1.PodQOSBurstable)
		need := admission.Need(asks)
		missing := admission.Amount{}
		for _, name := range names {
			if n := need[name] + inUse[name] - capacity[name]; need[name] > 0 && n > 0 {
				missing[name] = n
			}
		}
		a := j.Admit(asks, need)
		if len(missing) == 0 {
			if a.Failure != nil {
				rt.Fatalf("there is room: %v", a.Failure)
			}
			return
		}
		// cost is how bad a choice is: the number of pods by rank, from the highest down, and what they have, as a part of what is missing.
		cost := func(set uint) (pieces []int, size float64, makesRoom bool) {
			pieces = make([]int, len(classes)*priorities)
			left := maps.Clone(missing)
			for i, p := range pods {
				if set&(1<<i) == 0 {
					continue
				}
				if *p.Spec.Priority >= *asks.Spec.Priority {
					return nil, 0, false
				}
				pieces[slices.Index(classes, p.Status.QOSClass)*priorities+priorities-1-int(*p.Spec.Priority)]++
				for name, n := range missing {
					left[name] -= has[i][name]
					size += float64(has[i][name]) / float64(n)
				}
			}
			return pieces, size, !left.Positive()
		}
		var best []int
		var least float64
		for set := range uint(1) << len(pods) {
			if c, size, ok := cost(set); ok && (best == nil || cmp.Or(slices.Compare(c, best), cmp.Compare(size, least)) < 0) {
				best, least = c, size
			}
		}
		var chosen uint
		for i, p := range pods {
			if slices.Contains(a.Preempt, p.UID) {
				chosen |= 1 << i
			}
		}
		have, size, ok := cost(chosen)
		switch {
		case best == nil:
			if !a.Failure.Rejected {
				rt.Fatalf("no choice makes room, and it has %v end", a.Preempt)
			}
		case !ok || bits.OnesCount(chosen) != len(a.Preempt) || slices.Compare(have, best) != 0 || size > least+1e-9:
			rt.Fatalf("has %v end, which costs %v, %v; %v, %v would do", a.Preempt, have, size, best, least)
		}
	})
}

// BenchmarkPreemption chooses whom a critical pod takes the place of, among 500 pods: 5 ms are allowed.
func BenchmarkPreemption(b *testing.B) {
	classes := []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}
	var pods []admission.Held
	for i := range 500 {
		pods = append(pods, held(ranked(requests(types.UID(fmt.Sprint("pod", i)), "cpu", fmt.Sprintf("%dm", 1+i*7%97), "memory", fmt.Sprintf("%dMi", 1+i*11%89)), int32(i%7), classes[i%3])))
	}
	asks := ranked(requests("new", "cpu", "3", "memory", "3Gi"), critical, v1.PodQOSBurstable)
	need := admission.Need(asks)
	full := admission.Amount{}
	for _, h := range pods {
		for name, n := range h.Amount {
			full[name] += n
		}
	}
	for b.Loop() {
		b.StopTimer()
		j := admission.NewJudge(&admission.Node{}, full)
		for _, h := range pods {
			j.Add(h)
		}
		b.StartTimer()
		if a := j.Admit(asks, need); len(a.Preempt) == 0 {
			b.Fatal(a.Failure)
		}
	}
}
