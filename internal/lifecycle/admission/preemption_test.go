package admission_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
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
		{"then the next", full, ranked(requests("p", "cpu", "2"), critical, ""), "[guaranteed burstable]"},
		{"the higher priority last", full, ranked(requests("p", "cpu", "4"), critical, ""), "[more important guaranteed burstable]"},
		{"its own priority stays", full, ranked(requests("p", "cpu", "3"), 10, ""), "rejected"},
		{"more than the node has", full, ranked(requests("p", "cpu", "5"), critical, ""), "rejected"},
		{"without a priority", full, requests("p", "cpu", "1"), "rejected"},
		{"that never preempts", full, with(ranked(requests("p", "cpu", "1"), critical, ""), func(s *v1.PodSpec) { s.PreemptionPolicy = ptr.To(v1.PreemptNever) }), "rejected"},
		{"a place among the pods", full, ranked(requests("p"), critical, ""), "[burstable]"},
		{"few rather than small", append(full[:1:1], held(requests("small", "cpu", "1")), held(requests("big", "cpu", "2"))), ranked(requests("p", "cpu", "2"), critical, ""), "[big]"},
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

// TestPreemptionIsTheLeast compares with all there is to choose from: of one missing resource no other choice makes
// room that hurts nobody of a higher priority or QoS class and is of fewer pods.
func TestPreemptionIsTheLeast(t *testing.T) {
	classes := []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(rt, "pods")
		var pods []*v1.Pod
		capacity := admission.Amount{v1.ResourceCPU: 0}
		for i := range n {
			cpu := rapid.IntRange(0, 5).Draw(rt, "cpu")
			p := ranked(requests(types.UID(fmt.Sprint("p", i)), "cpu", fmt.Sprint(cpu)), int32(rapid.IntRange(0, 3).Draw(rt, "priority")), rapid.SampledFrom(classes).Draw(rt, "qos"))
			pods = append(pods, p)
			capacity[v1.ResourceCPU] += int64(cpu) * 1000
		}
		capacity[v1.ResourceCPU] += int64(rapid.IntRange(-2, 2).Draw(rt, "free")) * 1000
		j := admission.NewJudge(&admission.Node{}, capacity)
		for _, p := range pods {
			j.Hold(held(p))
		}
		asks := ranked(requests("new", "cpu", fmt.Sprint(rapid.IntRange(1, 12).Draw(rt, "asks"))), int32(rapid.IntRange(0, 4).Draw(rt, "its priority")), v1.PodQOSBurstable)
		need := admission.Need(asks)
		missing := need[v1.ResourceCPU] - capacity[v1.ResourceCPU]
		for _, p := range pods {
			missing += admission.Need(p)[v1.ResourceCPU]
		}
		a := j.Admit(asks, need)
		if missing <= 0 {
			if a.Failure != nil {
				rt.Fatalf("there is room: %v", a.Failure)
			}
			return
		}
		// cost is how bad a choice is: the count by rank, from the highest down.
		cost := func(set uint) (cost []int, makesRoom bool) {
			cost = make([]int, 12)
			left := missing
			for i, p := range pods {
				if set&(1<<i) == 0 {
					continue
				}
				if *p.Spec.Priority >= *asks.Spec.Priority {
					return nil, false
				}
				rank := int(*p.Spec.Priority)*3 + slices.Index(classes, p.Status.QOSClass)
				cost[len(cost)-1-rank]++
				left -= admission.Need(p)[v1.ResourceCPU]
			}
			return cost, left <= 0
		}
		var best []int
		for set := range uint(1) << n {
			if c, ok := cost(set); ok && (best == nil || slices.Compare(c, best) < 0) {
				best = c
			}
		}
		var chosen uint
		for i, p := range pods {
			if slices.Contains(a.Preempt, p.UID) {
				chosen |= 1 << i
			}
		}
		have, ok := cost(chosen)
		switch {
		case best == nil:
			if !a.Failure.Rejected {
				rt.Fatalf("no choice makes room, and it has %v end", a.Preempt)
			}
		case !ok || bits.OnesCount(chosen) != len(a.Preempt) || slices.Compare(have, best) != 0:
			rt.Fatalf("has %v end, which costs %v; %v would do", a.Preempt, have, best)
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
			j.Hold(h)
		}
		b.StartTimer()
		if a := j.Admit(asks, need); len(a.Preempt) == 0 {
			b.Fatal(a.Failure)
		}
	}
}
