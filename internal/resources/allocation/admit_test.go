package allocation_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
)

// wants has these pods run, and no others.
func (n *node) wants(pods ...*v1.Pod) {
	n.pods = nil
	for _, p := range pods {
		n.pods = append(n.pods, allocation.Pod{Pod: p})
	}
}

// stops has a wanted pod end.
func (n *node) stops(uid types.UID) {
	for i := range n.pods {
		n.pods[i].Ending = n.pods[i].Ending || n.pods[i].UID == uid
	}
}

// answer is "admitted", "rejected REASON" or "waits for WHAT".
func (n *node) answer(p *v1.Pod) string {
	n.t.Helper()
	_, err := n.Admit(n.t.Context(), p)
	var f *pod.Failure
	switch {
	case err == nil:
		return "admitted"
	case !errors.As(err, &f):
		n.t.Errorf("pod %s: %v", p.UID, err)
		return "error"
	case f.Rejected:
		return "rejected " + string(f.Reason)
	default:
		return "waits for " + string(f.Wait)
	}
}

func (n *node) says(p *v1.Pod, want string) {
	n.t.Helper()
	if got := n.answer(p); got != want {
		n.t.Errorf("pod %s is %s, want %s", p.UID, got, want)
	}
}

func created(p *v1.Pod, second int) *v1.Pod {
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
	return p
}

// TestOrderOfAdmission: who is let in follows from the pods alone, whatever the order in which their workers ask.
func TestOrderOfAdmission(t *testing.T) {
	n := newNode(t)
	n.store = noDisk{}
	for round := range 1000 {
		n.restart()
		pods := []*v1.Pod{created(makePod("b", 1500, 10), 1), created(makePod("c", 1500, 10), 1), created(makePod("a", 1500, 10), 2), created(makePod("small", 1000, 10), 3), created(makePod("late", 1, 10), 4)}
		n.wants(pods...)
		want := map[types.UID]string{"b": "admitted", "c": "admitted", "a": "rejected OutOfcpu", "small": "admitted", "late": "rejected OutOfcpu"}
		rand.Shuffle(len(n.pods), func(i, j int) { n.pods[i], n.pods[j] = n.pods[j], n.pods[i] })
		rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		var wg sync.WaitGroup
		for _, p := range pods {
			ask := func() {
				if got := n.answer(p); got != want[p.UID] {
					t.Errorf("round %d: pod %s is %s, want %s", round, p.UID, got, want[p.UID])
				}
			}
			if round%2 == 0 {
				ask()
			} else {
				wg.Go(ask)
			}
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// TestAdoptedPodsComeFirst: 110 pods fill the node and run, whether their records are there or lost. A new one
// is rejected however the workers are scheduled, and none of the 110 is.
func TestAdoptedPodsComeFirst(t *testing.T) {
	for round := range 10 {
		n := newNode(t)
		var pods []*v1.Pod
		for i := range 110 {
			p := created(makePod(types.UID(fmt.Sprint("old", i)), 30, 5), 100+i)
			pods = append(pods, p)
			n.runs[p.UID] = true
			if i%2 == 0 {
				n.admit(p)
			}
		}
		n.restart()
		n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("110")}, nil)
		pods = append(pods, created(makePod("new", 30, 5), 1)) // older than all others
		n.wants(pods...)
		rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		if round == 0 {
			slices.SortFunc(pods, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		}
		for _, p := range pods {
			if p.UID == "new" {
				n.says(p, "rejected OutOfpods")
			} else {
				n.says(p, "admitted")
			}
		}
	}
}

// TestEndedPodsHoldNothing: neither does one that was rejected before the agent's restart take any room.
func TestEndedPodsHoldNothing(t *testing.T) {
	n := newNode(t)
	done, rejected, next := makePod("done", 4000, 10), makePod("rejected", 100, 10), makePod("z", 4000, 10)
	n.admit(done)
	n.disk.Store.Save("rejected", "kept", 1, false)
	n.ended["done"], n.ended["rejected"] = true, true
	n.restart()
	n.wants(done, rejected, next)
	n.says(next, "admitted")
	n.Release("z")
	n.says(makePod("more", 4000, 10), "admitted")
}

// TestEndedPodsHoldWhatIsLeft: one that ended before the agent's restart, and of which the control group is there, holds what it had until that is gone.
func TestEndedPodsHoldWhatIsLeft(t *testing.T) {
	n := newNode(t)
	done, next := makePod("done", 4000, 10), makePod("next", 4000, 10)
	n.admit(done)
	n.ended["done"], n.left = true, []types.UID{"done"}
	n.restart()
	n.wants(done, next)
	n.says(next, "waits for Room")
	n.room(true, func() { n.Release("done") })
	n.woken("next")
	n.says(next, "admitted")
}

// TestRejectedIsFinal: room that appears later changes nothing for who was rejected, until it is another version.
func TestRejectedIsFinal(t *testing.T) {
	n := newNode(t)
	first, second := makePod("a", 4000, 10), makePod("b", 1000, 10)
	n.wants(first, second)
	n.says(second, "rejected OutOfcpu") // the other one comes first by its name
	n.Forget("a")
	n.wants(second)
	n.says(second, "rejected OutOfcpu")
	edited := makePod("b", 500, 10)
	n.wants(edited)
	n.says(edited, "admitted")
}

// TestAdmissionWaitsForThoseThatEnd: whoever fits once pods are gone that should no longer run isn't rejected.
func TestAdmissionWaitsForThoseThatEnd(t *testing.T) {
	n := newNode(t)
	old, next, small := makePod("old", 3000, 10), makePod("next", 2000, 10), makePod("small", 1000, 10)
	n.wants(old)
	n.admit(old)
	n.wants(old, next, small)
	n.stops("old")
	n.says(next, "waits for Room")
	n.says(next, "waits for Room")
	n.says(small, "waits for Room") // the room that there is is kept for the other one
	n.woken()
	n.room(true, func() { n.Forget("old") })
	n.woken("next", "small")
	n.wants(next, small)
	n.says(small, "admitted") // the other one is judged first, and let in
	n.woken("next")
	n.says(next, "admitted")
	n.has(next)
}

// TestPodsThatNoSourceHas hold what they were given, and are waited for: they end, or their source hasn't reported yet.
func TestPodsThatNoSourceHas(t *testing.T) {
	n := newNode(t)
	old, next := makePod("old", 3000, 10), makePod("next", 2000, 10)
	n.wants(old)
	n.admit(old)
	n.restart()
	n.wants(next)
	n.says(next, "waits for Room")
	n.Forget("old")
	n.woken("next")
	n.says(next, "admitted")
}

// TestAWaitThatEndsInARejectionMakesWay: what was kept for one that is rejected is there for others, which learn of it.
func TestAWaitThatEndsInARejectionMakesWay(t *testing.T) {
	n := newNode(t)
	old, big, small := makePod("old", 3000, 10), makePod("big", 2000, 10), makePod("small", 1000, 10)
	n.wants(old)
	n.admit(old)
	n.wants(old, big, small)
	n.stops("old")
	n.says(big, "waits for Room")
	n.says(small, "waits for Room")
	n.wants(old, big, small) // after all
	n.room(true, func() { n.says(big, "rejected OutOfcpu") })
	n.woken("small")
	n.says(small, "admitted")
}

// TestPreemption: the pods of lower priority get a verdict and are woken, and nobody else takes their room.
func TestPreemption(t *testing.T) {
	n := newNode(t)
	low, mid := ranked(makePod("low", 2000, 10), 0, v1.PodQOSBurstable), ranked(makePod("mid", 2000, 10), 10, v1.PodQOSBurstable)
	n.wants(low, mid)
	n.admit(low, mid)
	vital, other := ranked(makePod("vital", 1500, 10), 2_000_000_000, v1.PodQOSBurstable), ranked(makePod("other", 1000, 10), 0, v1.PodQOSBurstable)
	n.wants(low, mid, vital, other)
	n.says(vital, "waits for Room")
	n.woken("low")
	e := n.Termination("low")
	if e == nil || e.Reason != "Preempting" || !e.Disruption || e.Grace != nil || e.At.IsZero() || n.Termination("mid") != nil || n.Termination("vital") != nil {
		t.Errorf("verdicts: %+v, %+v, %+v", e, n.Termination("mid"), n.Termination("vital"))
	}
	n.says(vital, "waits for Room") // once is enough
	n.says(other, "rejected OutOfcpu")
	if want := []string{"rejected OutOfcpu", "preempted for cpu"}; !slices.Equal(n.meter.told, want) { // in the order of their names
		t.Errorf("counted %q, want %q", n.meter.told, want)
	}
	n.woken()
	if n.Termination("low") != e {
		t.Error("another verdict")
	}
	n.room(true, func() { n.Release("low") })
	n.woken("vital")
	n.says(vital, "admitted")
	n.has(vital)
	n.Forget("low")
	if n.Termination("low") != nil {
		t.Error("the verdict outlives the pod")
	}
}

// TestPreemptionOfAPodThatWaits: room that is kept for a pod of lower priority is no reason to reject one of higher.
func TestPreemptionOfAPodThatWaits(t *testing.T) {
	n := newNode(t)
	old, low, vital := makePod("old", 3000, 10), ranked(makePod("low", 3000, 10), 0, v1.PodQOSBurstable), ranked(makePod("vital", 3000, 10), 2_000_000_000, v1.PodQOSBurstable)
	n.wants(old)
	n.admit(old)
	n.wants(old, low)
	n.stops("old")
	n.says(low, "waits for Room")
	n.wants(old, low, vital)
	n.stops("old")
	n.says(vital, "waits for Room")
	n.woken("low")
	e := n.Termination("low")
	if e == nil || e.Reason != "Preempting" || n.Termination("vital") != nil {
		t.Errorf("verdicts: %+v, %+v", e, n.Termination("vital"))
	}
	n.says(low, "waits for Room") // as long as it lasts: it gets no room any more
	n.Forget("old")
	n.says(vital, "waits for Room")
	if n.Termination("low") != e {
		t.Error("another verdict")
	}
	n.Release("low")
	n.says(vital, "admitted")
	n.has(vital)
}

// TestAWaitForLessMakesWay: what was kept for a pod that asks for less by now is there for a resize, which learns of it.
func TestAWaitForLessMakesWay(t *testing.T) {
	n := newNode(t)
	old, resized, big := makePod("old", 1000, 10), makePod("resized", 500, 10), makePod("big", 3000, 900)
	n.wants(old, resized)
	n.admit(old, resized)
	n.wants(old, resized, big)
	n.stops("old")
	n.says(big, "waits for Room")
	n.refused(makePod("resized", 500, 500), "Deferred", "")
	edited := makePod("big", 3000, 10)
	n.wants(old, resized, edited)
	n.stops("old")
	n.room(true, func() { n.says(edited, "waits for Room") })
	n.woken("resized")
	n.granted(makePod("resized", 500, 500))
}

// TestEditWhileAnAdmissionIsWritten: what was given keeps its room, whatever is thought of the next version meanwhile.
func TestEditWhileAnAdmissionIsWritten(t *testing.T) {
	n := newNode(t)
	a, edited, b := makePod("a", 2000, 10), makePod("a", 5000, 10), makePod("b", 3000, 10)
	n.wants(a)
	entered, proceeds := make(chan types.UID), make(chan struct{})
	n.disk.entered, n.disk.proceeds = entered, proceeds
	var wg sync.WaitGroup
	wg.Go(func() { n.admit(a) })
	<-entered
	n.disk.mu.Lock()
	n.disk.entered = nil
	n.disk.mu.Unlock()
	n.wants(edited, b)
	n.says(b, "rejected OutOfcpu")
	close(proceeds)
	wg.Wait()
	n.has(a)
}

// TestThoseThatWaitKeepTheirTurn: also beside an older pod that has come to wait after them.
func TestThoseThatWaitKeepTheirTurn(t *testing.T) {
	n := newNode(t)
	old, first, second := makePod("old", 3000, 10), created(makePod("first", 3000, 10), 9), created(makePod("second", 750, 10), 1)
	n.wants(old)
	n.admit(old)
	n.wants(old, first)
	n.stops("old")
	n.says(first, "waits for Room")
	n.wants(old, first, second)
	n.stops("old")
	n.says(second, "waits for Room")
	n.says(first, "waits for Room")
	n.woken()
	n.says(second, "waits for Room")
}

// TestAdmissionThatIsGivenUp: a pod that ends before it asks, or while it waits, keeps no room.
func TestAdmissionThatIsGivenUp(t *testing.T) {
	n := newNode(t)
	a, b := makePod("a", 3000, 10), makePod("b", 2000, 10)
	n.wants(a, b)
	n.says(b, "rejected OutOfcpu")
	c := makePod("c", 2000, 10)
	n.wants(a, c)
	n.stops("a") // which never asked
	n.says(c, "waits for Room")
	n.room(true, func() { n.Forget("a") })
	n.wants(c)
	n.says(c, "admitted")
}

// TestResizeAndAdmissionShareTheRoom: neither gives what the other one gave.
func TestResizeAndAdmissionShareTheRoom(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("a", 1000, 10), makePod("b", 1000, 10))
	n.granted(makePod("a", 2500, 10))
	n.wants(makePod("a", 2500, 10), makePod("b", 1000, 10))
	n.says(makePod("c", 1000, 10), "rejected OutOfcpu")
	n.says(makePod("d", 500, 10), "admitted")
	n.refused(makePod("a", 2501, 10), "Deferred", "")
}

// TestPlaces: the number of pods counts, and a pod that has ended for good gives its place back.
func TestPlaces(t *testing.T) {
	n := newNode(t)
	n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("2")}, nil)
	n.admit(makePod("a", 1, 1), makePod("b", 1, 1))
	n.wants(makePod("a", 1, 1), makePod("b", 1, 1))
	n.says(makePod("c", 1, 1), "rejected OutOfpods")
	n.room(true, func() { n.Release("a") })
	n.says(makePod("d", 1, 1), "admitted")
}

// BenchmarkAdmit admits 500 pods that one report brought, each asked for by its own worker: 20 ms are allowed in all.
func BenchmarkAdmit(b *testing.B) {
	var pods []allocation.Pod
	for i := range 500 {
		pods = append(pods, allocation.Pod{Pod: makePod(types.UID(fmt.Sprint("pod", i)), 1, 1)})
	}
	for b.Loop() {
		m := allocation.New(allocation.Config{Store: noDisk{}, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("500")},
			Node: func() *admission.Node { return &admission.Node{} }, Pods: func(yield func(allocation.Pod) bool) { slices.Values(pods)(yield) },
			Runs: func(types.UID) bool { return false }, Assigners: []allocation.Assigner{&plugins{}}, Wake: func(types.UID) {}, Meter: &meter{}, Log: logr.Discard()})
		for _, p := range pods {
			if _, err := m.Admit(b.Context(), p.Pod); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// noDisk keeps nothing.
type noDisk struct{}

func (noDisk) UIDs() ([]types.UID, error)                { return nil, nil }
func (noDisk) Load(types.UID, string, any) (bool, error) { return false, nil }
func (noDisk) Save(types.UID, string, any, bool) error   { return nil }

// TestPressureIsWaitedFor: what isn't admitted waits without keeping room, and is woken when the pressure ends; what was admitted, and runs
// or grows, isn't judged again.
func TestPressureIsWaitedFor(t *testing.T) {
	n := newNode(t)
	old, adopted, first, second := makePod("old", 1000, 10), makePod("adopted", 500, 10), makePod("first", 2000, 10), makePod("second", 2000, 10)
	vital := ranked(makePod("vital", 2000, 10), 2_000_000_000, v1.PodQOSBurstable)
	n.admit(old)
	n.runs["adopted"] = true
	n.facts.Pressure.Disk = true
	n.wants(old, adopted, first, second, vital)
	n.says(adopted, "admitted")
	n.says(old, "admitted")
	n.says(second, "waits for Pressure")
	n.says(first, "waits for Pressure")
	if held := n.Holdings(); len(held["first"].Requests)+len(held["second"].Requests) > 0 {
		t.Errorf("those that wait hold %v", held)
	}
	n.says(vital, "admitted")
	n.granted(makePod("old", 1100, 10))
	n.woken()
	if len(n.meter.told) > 1 { // the resize
		t.Errorf("counted %q", n.meter.told)
	}
	n.Forget("vital")
	n.woken("first", "second")
	n.wants(old, adopted, first, second)
	n.says(first, "waits for Pressure")
	n.facts.Pressure.Disk = false
	n.room(true, func() { n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, nil) })
	n.woken("first", "second")
	n.says(first, "admitted")
	n.woken("second")
	n.says(second, "rejected OutOfcpu")
}

// TestPressureRejectsInAClusterForGood: as the kubelet does; what waits for something else is judged again when the pressure begins.
func TestPressureRejectsInAClusterForGood(t *testing.T) {
	n := newNode(t)
	n.facts.InCluster = true
	old, waits, next := makePod("old", 4000, 10), makePod("waits", 1000, 10), makePod("next", 1, 1)
	n.admit(old)
	n.wants(old, waits)
	n.stops("old")
	n.says(waits, "waits for Room")
	n.facts.Pressure.Memory, n.facts.Pressure.PIDs = true, true
	n.room(true, func() { n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, nil) })
	n.woken("waits")
	n.says(waits, "rejected Evicted")
	n.facts.Pressure = admission.Pressure{}
	n.says(waits, "rejected Evicted")
	n.wants(old, next)
	n.stops("old")
	n.says(next, "waits for Room")
	if want := []string{"rejected Evicted"}; !slices.Equal(n.meter.told, want) {
		t.Errorf("counted %q, want %q", n.meter.told, want)
	}
}

// TestDevicesComeLast: a pod that is admitted otherwise is admitted once it has its devices. What it waits for is tried again, and too
// long a wait for a plugin is none; what is refused it keeps nothing of.
func TestDevicesComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		full := makePod("full", 4000, 1)
		p := makePod("p", 4000, 1)
		n.wants(full)
		n.plugins.answer = &pod.Failure{Wait: pod.WaitForPlugin, Message: "the plugin"}
		n.says(full, "waits for Plugin")
		n.says(makePod("other", 1, 1), "rejected OutOfcpu") // its CPUs are kept for it
		time.Sleep(4 * time.Minute)
		n.says(full, "waits for Plugin")
		time.Sleep(time.Minute)
		n.says(full, "rejected UnexpectedAdmissionError")
		if told := n.meter.told; !slices.Equal(told, []string{"rejected OutOfcpu", "rejected UnexpectedAdmissionError"}) {
			t.Errorf("counted %q", told)
		}
		n.plugins.answer = errDisk
		n.wants(full, p)
		if _, err := n.Admit(t.Context(), p); !errors.Is(err, errDisk) {
			t.Errorf("with a disk that is full: %v", err)
		}
		n.plugins.answer = nil
		n.says(p, "admitted")
		asked := len(n.plugins.assigned)
		n.says(p, "admitted")
		n.says(makePod("more", 1, 1), "rejected OutOfcpu")
		if len(n.plugins.assigned) != asked || n.plugins.released[len(n.plugins.released)-1] != "more" {
			t.Errorf("asked for devices were %v, released %v", n.plugins.assigned, n.plugins.released)
		}
		n.Release("p")
		if n.plugins.released[len(n.plugins.released)-1] != "p" {
			t.Errorf("released were %v", n.plugins.released)
		}
	})
}

// TestDevicesAreWaitedForInPeace: pods that wait for devices, of which there are fewer than it seems, don't wake each other again and again.
func TestDevicesAreWaitedForInPeace(t *testing.T) {
	n := newNode(t)
	a, b := makePod("a", 1, 1), makePod("b", 1, 1)
	n.wants(a, b)
	n.plugins.answer = &pod.Failure{Wait: pod.WaitForRoom}
	for range 3 {
		n.says(a, "waits for Room")
		n.says(b, "waits for Room")
		n.woken()
	}
	n.says(makePod("other", 4000, 1), "rejected OutOfcpu") // theirs is kept for them
	n.Release("gone")
	n.woken()
	n.plugins.answer = nil
	n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}, nil)
	n.woken("a", "b")
	n.says(b, "admitted")
	n.says(a, "admitted")
}

// TestASlowPlugin: a plugin that doesn't answer is asked again when its failure says, and a wait for room between two waits for a plugin
// makes them two.
func TestASlowPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := makePod("p", 1, 1)
		n.wants(p)
		admit := func(answer *pod.Failure) *pod.Failure {
			t.Helper()
			n.plugins.answer = answer
			var f *pod.Failure
			if _, err := n.Admit(t.Context(), p); !errors.As(err, &f) || f.Rejected {
				t.Fatalf("it doesn't wait: %v", err)
			}
			return f
		}
		began := time.Now()
		if f := admit(&pod.Failure{Wait: pod.WaitForPlugin, NotBefore: began.Add(10 * time.Second)}); !f.NotBefore.Equal(began.Add(10 * time.Second)) {
			t.Errorf("it is tried again at %s", f.NotBefore)
		}
		time.Sleep(4 * time.Minute)
		if f := admit(&pod.Failure{Wait: pod.WaitForPlugin, NotBefore: began.Add(time.Hour)}); !f.NotBefore.Equal(began.Add(5 * time.Minute)) {
			t.Errorf("it is tried again at %s", f.NotBefore)
		}
		admit(&pod.Failure{Wait: pod.WaitForRoom})
		time.Sleep(4 * time.Minute)
		if f := admit(&pod.Failure{Wait: pod.WaitForPlugin}); !f.NotBefore.Equal(time.Now().Add(5 * time.Minute)) {
			t.Errorf("it is tried again at %s", f.NotBefore)
		}
	})
}

// TestRejectedInVainHoldsNothing: a pod that is rejected after its wait, while another pod is decided on, leaves that its room.
func TestRejectedInVainHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		late, next := makePod("late", 3000, 1), makePod("next", 3000, 1)
		n.wants(late)
		n.plugins.answer = &pod.Failure{Wait: pod.WaitForPlugin, Message: "the plugin"}
		n.says(late, "waits for Plugin")
		time.Sleep(6 * time.Minute)
		n.plugins.answer = nil
		n.wants(late, next)
		n.says(next, "admitted")
		n.says(late, "rejected UnexpectedAdmissionError")
		if held, ok := n.Holdings()["late"]; ok {
			t.Errorf("the rejected pod holds %v", held)
		}
	})
}

// TestImpatience: where pods don't wait for plugins, as with a kubelet, one is rejected whose plugin isn't there, also one of an earlier
// agent, unless a container of it runs.
func TestImpatience(t *testing.T) {
	n := newNode(t)
	n.plugins.absent = "example.com/gpu"
	patient, dead, lives := makePod("patient", 1, 1), makePod("dead", 3000, 1), makePod("lives", 1, 1)
	for _, p := range []*v1.Pod{patient, dead, lives} {
		n.says(p, "admitted")
	}
	n.restart()
	if _, err := n.Allocated(patient); err != nil {
		t.Errorf("where pods wait for plugins, one that was admitted: %v", err)
	}
	n.impatient, n.lives = true, map[types.UID]bool{"lives": true}
	n.restart()
	if _, err := n.Allocated(lives); err != nil {
		t.Errorf("a pod that runs: %v", err)
	}
	var f *pod.Failure
	if _, err := n.Allocated(dead); !errors.As(err, &f) || !f.Rejected || f.Reason != pod.ReasonUnexpectedAdmissionError || !strings.Contains(f.Message, "example.com/gpu") {
		t.Errorf("a pod of which nothing runs: %v", err)
	}
	if held, ok := n.Holdings()["dead"]; ok || !slices.Contains(n.plugins.released, "dead") {
		t.Errorf("it holds %v, released were %v", held, n.plugins.released)
	}
	n.plugins.answer = &pod.Failure{Wait: pod.WaitForPlugin, Message: "the plugin"}
	n.says(makePod("new", 3000, 1), "rejected UnexpectedAdmissionError")
}

// TestAwaitedPlugins: for a resource whose plugin is away a pod waits, and is woken when it is back; then what there is counts.
func TestAwaitedPlugins(t *testing.T) {
	n := newNode(t)
	asks := func(uid types.UID) *v1.Pod {
		p := makePod(uid, 1, 1)
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		return p
	}
	is := func(gpus string, awaited bool) {
		n.NodeChanged(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), "example.com/gpu": resource.MustParse(gpus)}, map[v1.ResourceName]bool{"example.com/gpu": awaited})
	}
	a := asks("a")
	n.wants(a)
	n.says(a, "waits for Plugin")
	is("0", true)
	n.says(a, "waits for Plugin")
	n.room(true, func() { is("1", false) })
	n.says(a, "admitted")
	n.says(asks("b"), "rejected OutOfexample.com/gpu")
	n.plugins.unallocatable = map[v1.ResourceName]int64{"example.com/gpu": 1, "example.com/unknown": 1} // a's isn't healthy any more, another one is
	n.wants(a)
	beside := asks("beside")
	n.says(beside, "admitted")
	n.wants(a, beside)
	n.says(asks("too much"), "rejected OutOfexample.com/gpu")
	unknown := asks("unknown")
	unknown.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/unknown": resource.MustParse("1")}
	n.says(unknown, "waits for Plugin")
	n.Release("beside")
	n.wants(a)
	n.plugins.unallocatable = nil
	is("0", true)
	c := asks("c")
	n.says(c, "waits for Plugin")
	n.room(true, func() { is("0", false) })
	n.says(c, "rejected OutOfexample.com/gpu")
}

// TestAssignersTakeBack: where a later assigner refuses, or waits, the pod keeps nothing of those before, unless it runs.
func TestAssignersTakeBack(t *testing.T) {
	n := newNode(t)
	n.runs["runs"] = true
	for _, answer := range []error{&pod.Failure{Wait: pod.WaitForRoom}, errDisk, &pod.Failure{Reason: "Refused", Rejected: true}} {
		n.others.answer = answer
		for _, uid := range []types.UID{"new", "runs"} {
			n.plugins.released = nil
			if _, err := n.Admit(t.Context(), makePod(uid, 1, 1)); err == nil {
				t.Errorf("pod %s is admitted, though: %v", uid, answer)
			}
			if back := slices.Contains(n.plugins.released, uid); back != (uid == "new") {
				t.Errorf("pod %s gave back what it had: %v (%v)", uid, back, answer)
			}
		}
	}
}
