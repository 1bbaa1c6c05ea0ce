package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func (w *world) termination(uid types.UID) *pod.PodTermination {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.terminations[uid]
}

// forgetTermination is called for pods that are gone.
func (w *world) forgetTermination(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = append(w.gone, uid)
	delete(w.terminations, uid)
}

// terminate has a pod end.
func (w *world) terminate(uid types.UID) {
	grace := time.Second
	w.mu.Lock()
	w.terminations[uid] = &pod.PodTermination{At: time.Now(), Grace: &grace, Reason: "Evicted", Message: "it keeps too much", Disruption: true}
	w.mu.Unlock()
	w.pool.Wake(uid)
}

// evicted reports whether the pod is reported as evicted.
func (w *world) evicted(t *testing.T, uid types.UID) bool {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.reports[uid].Status
	if st.Phase != v1.PodFailed {
		return false
	}
	if st.Reason != "Evicted" || st.Message != "it keeps too much" {
		t.Errorf("it failed for %s (%s)", st.Reason, st.Message)
	}
	if !slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet && c.Message == "it keeps too much"
	}) {
		t.Errorf("nothing tells that it was disrupted: %+v", st.Conditions)
	}
	return true
}

// count is how often an effect or event was put down.
func (w *world) count(list *[]string, entry string) (n int) {
	for _, e := range w.lines(list) {
		if e == entry {
			n++
		}
	}
	return n
}

const evictedEvent = "a1 Warning Evicted: it keeps too much"

func withVolume(d *pod.Desired) *pod.Desired {
	d.Pod.Spec.Volumes = []v1.Volume{{Name: "data"}}
	return d
}

func TestAVerdictEndsAPodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(withVolume(newPod("a", "a1")), newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		w.terminate("a1")
		time.Sleep(10 * time.Second)
		if !w.evicted(t, "a1") || w.running("a1") || !w.running("b1") {
			t.Fatalf("it didn't end, or another did: %v", w.log)
		}
		for range 5 {
			w.pool.WakeAll()
			time.Sleep(time.Hour)
		}
		if !w.evicted(t, "a1") || w.count(&w.events, evictedEvent) != 1 || w.count(&w.log, entry("a1", pod.StopContainer)) != 1 || w.count(&w.log, entry("a1", pod.ReleaseVolumes)) != 1 {
			t.Errorf("%v %v", w.log, w.events)
		}
	})
}

// The next agent knows of no termination but that in the checkpoint.
func TestAVerdictOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, until := range map[string]time.Duration{"while it is being stopped": 150 * time.Millisecond, "at its end": time.Minute} {
			w := bareWorld()
			close(w.known)
			w.pods = []*pod.Desired{withVolume(newPod("a", "a1"))}
			stop := w.start(t)
			time.Sleep(10 * time.Second)
			if until < time.Second { // the container takes its time
				w.mu.Lock()
				w.hold["a1/StopContainer"] = make(chan struct{})
				w.mu.Unlock()
			}
			w.terminate("a1")
			time.Sleep(until)
			stop()
			if w.checkpoints["a1"] == nil || w.checkpoints["a1"].Termination == nil {
				t.Fatalf("%s: nothing was written down: %+v", name, w.checkpoints["a1"])
			}
			w2 := bareWorld()
			close(w2.known)
			w2.runtime, w2.checkpoints, w2.nextID, w2.pods = w.runtime, w.checkpoints, 100, w.pods
			w2.start(t)
			time.Sleep(time.Minute)
			if !w2.evicted(t, "a1") || w2.running("a1") || w2.count(&w2.events, evictedEvent) != 0 || w2.count(&w2.log, entry("a1", pod.CreateContainer)) != 0 {
				t.Errorf("%s: %v %v", name, w2.log, w2.events)
			}
			if n := w2.count(&w2.log, entry("a1", pod.ReleaseVolumes)); n != 1 {
				t.Errorf("%s: its volumes were released %d times by the next agent", name, n)
			}
		}
	})
}

// The termination of a pod doesn't hold for the next one of its UID.
func TestAVerdictGoesWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := newPod("a", "a1")
		w.set(first)
		time.Sleep(10 * time.Second)
		w.terminate("a1")
		time.Sleep(10 * time.Second)
		if !w.evicted(t, "a1") {
			t.Fatal("it didn't end")
		}
		w.set(edited(first, "y", "another"))
		time.Sleep(20 * time.Second)
		if w.image(first) != "y" || !slices.Equal(w.gone, []types.UID{"a1"}) {
			t.Errorf("the next pod doesn't run: %v, gone %v", w.log, w.gone)
		}
	})
}
