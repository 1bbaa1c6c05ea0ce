package worker

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// edited is the pod with another image and label; base says which version it began as.
func edited(d *pod.Desired, image, base string) *pod.Desired {
	p := d.Pod.DeepCopy()
	p.Spec.Containers[0].Image, p.Labels, p.Generation = image, map[string]string{"v": image}, p.Generation+1
	return &pod.Desired{Pod: p, Source: d.Source, Base: base}
}

func (w *world) image(d *pod.Desired) string {
	o := w.Get(d.Pod.UID)
	if o == nil || len(o.Containers) == 0 || o.Containers[0].State != pod.ContainerRunning {
		return ""
	}
	return o.Containers[0].Image
}

func TestEditInPlaceKeepsTheSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := newPod("a", "a1")
		w.set(first)
		time.Sleep(10 * time.Second)
		box := w.Get("a1").Sandboxes[0].ID
		w.set(edited(first, "y", ""))
		time.Sleep(10 * time.Second)
		if w.image(first) != "y" || w.Get("a1").Sandboxes[0].ID != box {
			t.Fatalf("the container wasn't made anew in place: %v", w.log)
		}
	})
}

// TestLowerGeneration: under a UID that a manifest gives it is another pod's; under an API server's, whose store was
// restored, it is an edit like any other.
func TestLowerGeneration(t *testing.T) {
	for _, identity := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			first := newPod("a", "a1")
			first.Pod.Generation, first.UIDIsIdentity = 7, identity
			w.set(first)
			time.Sleep(10 * time.Second)
			box := w.Get("a1").Sandboxes[0].ID
			restored := edited(first, "y", "")
			restored.Pod.Generation, restored.UIDIsIdentity = 3, identity
			w.set(restored)
			time.Sleep(20 * time.Second)
			if w.image(first) != "y" {
				t.Fatalf("the restored version doesn't run: %v", w.log)
			}
			if kept := w.Get("a1").Sandboxes[0].ID == box; kept != identity {
				t.Errorf("UIDIsIdentity %v: the sandbox was kept: %v", identity, kept)
			}
		})
	}
}

func TestOtherPodOfTheSameUIDIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := newPod("a", "a1")
		w.set(first)
		time.Sleep(10 * time.Second)
		box := w.Get("a1").Sandboxes[0].ID
		w.set(edited(first, "y", "another"))
		time.Sleep(20 * time.Second)
		if w.image(first) != "y" || w.Get("a1").Sandboxes[0].ID == box {
			t.Fatalf("the pod wasn't made anew: %v", w.log)
		}
		if w.position("a1", pod.CleanPod) < 0 {
			t.Fatalf("its predecessor wasn't cleaned up: %v", w.log)
		}
	})
}

// TestDefinedAnew: a pod whose manifest was removed, and was back before anybody looked, is started again as the same pod, which counts on.
func TestDefinedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := newPod("a", "a1")
		w.set(first)
		time.Sleep(10 * time.Second)
		box := w.Get("a1").Sandboxes[0].ID
		again := *first
		again.Pod = first.Pod.DeepCopy()
		again.Pod.Annotations = map[string]string{pod.AnnotationConfigSeen: "later"}
		w.set(&again)
		time.Sleep(time.Minute)
		if !w.running("a1") || w.Get("a1").Sandboxes[0].ID == box || w.position("a1", pod.CleanPod) < 0 {
			t.Fatalf("the pod wasn't started again: %v", w.log)
		}
		if c := w.Get("a1").Newest("c"); c == nil || c.Attempt != 1 {
			t.Errorf("it doesn't count on: %+v", w.Get("a1").Containers)
		}
		box = w.Get("a1").Sandboxes[0].ID
		w.set(&again)
		time.Sleep(time.Minute)
		if w.Get("a1").Sandboxes[0].ID != box {
			t.Error("it was started once more")
		}
	})
}

// lines returns what was put down so far.
func (w *world) lines(list *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*list)
}

func last(list []string) string { return list[len(list)-1] }

func TestProbesAreAskedForOnceAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := newPod("a", "a1")
		d.Pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		w.set(d)
		time.Sleep(10 * time.Second)
		id := w.Get("a1").Containers[0].ID
		probe := pod.Probe{Container: "c", ID: id, Kind: pod.ProbeReadiness}
		if want := "a1  10.0.0.1 [{c " + id + " readiness}]"; !slices.Equal(w.lines(&w.asked), []string{want}) {
			t.Fatalf("asked for %q, not once for %q", w.lines(&w.asked), want)
		}
		if isReady(w, d) {
			t.Fatal("ready before its probe said so")
		}
		w.mu.Lock()
		w.results["a1"] = []pod.ProbeResult{{Probe: probe, OK: true}}
		w.mu.Unlock()
		w.pool.Wake("a1")
		synctest.Wait()
		if !isReady(w, d) {
			t.Fatal("not ready though its probe says so")
		}
		next := edited(d, "x", "")
		w.set(next)
		time.Sleep(time.Second)
		if line := last(w.lines(&w.asked)); !strings.HasPrefix(line, "a1 x ") {
			t.Fatalf("the probes weren't told of the new spec: %q", w.asked)
		}
		w.set()
		time.Sleep(20 * time.Second)
		if line := last(w.lines(&w.asked)); line != "a1 forgotten" {
			t.Fatalf("the probes weren't forgotten: %q", w.asked)
		}
		if line := last(w.lines(&w.journal)); line != "a1 closed" {
			t.Fatalf("the journal wasn't closed: %q", w.journal)
		}
	})
}

func isReady(w *world, d *pod.Desired) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.reports[d.Pod.UID].Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func TestWhatWasKeptIsGoneOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		w.checkpoints["a1"] = &pod.Checkpoint{StartTime: time.Now(), Terminal: v1.PodFailed, Termination: &pod.PodTermination{Reason: "Evicted"}}
		w.pods = []*pod.Desired{newPod("a", "a1")}
		w.start(t)
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if st := w.reports["a1"].Status; st.Phase != v1.PodFailed || st.Reason != "Evicted" || !slices.Equal(w.log, []string{"a1 ReleaseVolumes"}) {
			t.Fatalf("an evicted pod was started again: %s %s %v", st.Phase, st.Reason, w.log)
		}
	})
}

// TestCheckpointAfterAStepOfTheClock: the times of a checkpoint that is read after the clock was set are by the new clock.
func TestCheckpointAfterAStepOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		end := time.Now().Add(time.Minute).Round(0)
		w.clockSteps = []pod.ClockStep{{From: end.Add(-24 * time.Hour), By: time.Hour}, {From: end.Add(-12 * time.Hour), By: time.Hour}}
		w.checkpoints["a1"] = &pod.Checkpoint{EndBy: end, Termination: &pod.PodTermination{At: time.Now().Round(0), Reason: "Evicted"}}
		w.runtime["a1"] = &pod.Observed{UID: "a1", Containers: []pod.Container{{ID: "c1", Name: "c", State: pod.ContainerRunning, CreatedAt: time.Now()}}}
		decided := make(chan lifecycle.Memory, 1)
		w.core = func(in lifecycle.Input) lifecycle.Decision {
			d := lifecycle.Decide(in)
			select {
			case decided <- d.Memory:
			default:
			}
			return d
		}
		a := newPod("a", "a1")
		a.Pod.Spec.TerminationGracePeriodSeconds = new(int64(120)) // EndBy is before its end
		w.pods = []*pod.Desired{a}
		w.start(t)
		if m := <-decided; !m.Checkpoint.EndBy.Equal(end) {
			t.Errorf("the pod ends by %s, want %s", m.Checkpoint.EndBy, end)
		}
	})
}

func TestAFailingCoreHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		var mends atomic.Bool
		w.core = func(in lifecycle.Input) lifecycle.Decision {
			if in.Pod != nil && in.Pod.Name == "a" && in.Observed != nil && !mends.Load() {
				var none *lifecycle.Stop
				_ = none.Why // as a bug would
			}
			return lifecycle.Decide(in)
		}
		w.start(t)
		w.set(newPod("a", "a1"), newPod("b", "b1"))
		time.Sleep(time.Minute)
		if !w.running("b1") {
			t.Fatal("the other pod doesn't run")
		}
		w.mu.Lock()
		failed := slices.Contains(w.journal, "a1 failed")
		w.mu.Unlock()
		if !failed {
			t.Fatal("nobody took down what the core failed on")
		}
		mends.Store(true)
		time.Sleep(time.Minute)
		if !w.running("a1") {
			t.Fatal("the pod isn't looked at again, or the results of its actions were lost")
		}
	})
}

// TestOtherPodOfAGivenUID: a manifest that gives its pod's UID was edited while no
// agent ran. What is there belongs to the pod before, and is taken down first.
func TestOtherPodOfAGivenUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		first := newPod("a", "given")
		first.Base = "first"
		w.pods = []*pod.Desired{first}
		stop := w.start(t)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		kept := w.checkpoints["given"]
		w.mu.Unlock()
		if kept == nil || kept.Base != "first" || !w.running("given") {
			t.Fatalf("which pod this is wasn't written down: %+v", kept)
		}
		stop()
		box := w.Get("given").Sandboxes[0].ID

		w2 := bareWorld()
		close(w2.known)
		w2.runtime, w2.nextID, w2.checkpoints = w.runtime, 100, w.checkpoints
		w2.pods = []*pod.Desired{edited(first, "y", "second")}
		w2.start(t)
		time.Sleep(time.Minute)
		if w2.image(first) != "y" || w2.Get("given").Sandboxes[0].ID == box || w2.position("given", pod.CleanPod) < 0 {
			t.Fatalf("the other pod was adopted as if it were this one: %v", w2.log)
		}
	})
}

func TestUIDsMadeOfTheContentNeedNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := newPod("a", "hash")
		d.Base = "hash"
		d.Pod.Annotations = map[string]string{pod.AnnotationConfigSeen: time.Now().Format(time.RFC3339)}
		w.set(d)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if k := w.checkpoints["hash"]; k != nil {
			t.Errorf("%+v was written for nothing", k)
		}
	})
}
