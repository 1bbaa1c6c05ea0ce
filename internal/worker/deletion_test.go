package worker

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// object is the pod as an API server has it.
func object(d *pod.Desired) *pod.Desired {
	next := *d
	next.RequiresTerminalPhase, next.UIDIsIdentity = true, true
	return &next
}

// deleted is the pod after its object was deleted at an API server whose clock is off.
func deleted(d *pod.Desired, grace, off time.Duration) *pod.Desired {
	next, now := *object(d), time.Now()
	next.Pod = d.Pod.DeepCopy()
	at, seconds := metav1.NewTime(now.Add(off+grace)), int64(grace/time.Second)
	next.Pod.DeletionTimestamp, next.Pod.DeletionGracePeriodSeconds = &at, &seconds
	next.Deletion = &pod.Deletion{At: now, Grace: grace}
	return &next
}

// longRunning has a pod of which containers take as long to stop as they may.
func longRunning(w *world) *pod.Desired {
	w.hold["a1/StopContainer"] = make(chan struct{})
	return object(newPod("a", "a1"))
}

func (w *world) given() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.graces)
}

// Each nearer end reaches the worker; the API's clock counts for nothing.
func TestADeletionIsShortened(t *testing.T) {
	for _, off := range []time.Duration{0, -time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := longRunning(w)
			w.set(d)
			time.Sleep(10 * time.Second)
			for _, grace := range []time.Duration{30 * time.Second, 10 * time.Second, 20 * time.Second, 0} {
				w.set(deleted(d, grace, off))
				time.Sleep(2 * time.Second)
			}
			if got := w.given(); !slices.Equal(got, []time.Duration{30 * time.Second, 10 * time.Second, 2 * time.Second}) {
				t.Errorf("clocks differ by %s: it was given %v to stop", off, got)
			}
		})
	}
}

// A later agent hears of the deletion by its own clock, and ends the pod when the first one would have.
func TestADeletionGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		d := longRunning(w)
		stop := w.start(t)
		w.set(d)
		time.Sleep(10 * time.Second)
		w.set(deleted(d, 600*time.Second, 0))
		time.Sleep(200 * time.Second)
		stop()
		w2 := w.successor(deleted(d, 600*time.Second, 0))
		w2.hold = w.hold
		w2.start(t)
		time.Sleep(time.Second)
		if got := w2.given(); !slices.Equal(got, []time.Duration{400 * time.Second}) {
			t.Errorf("the next agent gave it %v to stop", got)
		}
	})
}

// An object that vanished was removed by force: its pod ends soon, nothing more is written for it, and its successor waits.
func TestAnObjectThatVanishes(t *testing.T) {
	for name, before := range map[string]func(*world, *pod.Desired){
		"while it runs":      func(*world, *pod.Desired) {},
		"while it is ending": func(w *world, d *pod.Desired) { w.set(deleted(d, 30*time.Second, 0)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := longRunning(w)
			w.set(d)
			time.Sleep(10 * time.Second)
			before(w, d)
			time.Sleep(time.Second)
			w.mu.Lock()
			saved := slices.Clone(w.log)
			w.mu.Unlock()
			w.set(object(newPod("a", "a2")))
			time.Sleep(5 * time.Second)
			if got := w.given(); got[len(got)-1] != 2*time.Second {
				t.Errorf("%s: it was given %v to stop", name, got)
			}
			if w.position("a2", pod.AdmitPod) >= 0 {
				t.Errorf("%s: its successor began: %v", name, w.log)
			}
			close(w.hold["a1/StopContainer"])
			time.Sleep(10 * time.Second)
			if w.Get("a1") != nil || !w.running("a2") || w.checkpoints["a1"] != nil {
				t.Errorf("%s: it isn't gone, or its successor doesn't run: %v", name, w.log)
			}
			if n := w.count(&w.log, entry("a1", pod.SaveCheckpoint)); n != countIn(saved, entry("a1", pod.SaveCheckpoint)) {
				t.Errorf("%s: it was written down once more: %v", name, w.log)
			}
		})
	}
}

func countIn(list []string, entry string) (n int) {
	for _, e := range list {
		if e == entry {
			n++
		}
	}
	return n
}

// told is what is told of the pod: its status as JSON, and whether it is told as gone.
func (w *world) told(t *testing.T, uid types.UID) (status string, gone bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.reports[uid]
	if !ok {
		return "", false
	}
	text, err := json.Marshal(r.Status)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), r.Gone
}

// successor is the world in which a later agent finds itself.
func (w *world) successor(pods ...*pod.Desired) *world {
	next := bareWorld()
	close(next.known)
	next.runtime, next.checkpoints, next.nextID, next.pods = w.runtime, w.checkpoints, 1000, pods
	return next
}

// The final status is told until the source hasn't the pod any more, however long that takes, and no other pod begins
// under its UID. Containers stay as long.
func TestTheFinalStatusIsReportedUntilTheObjectIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := object(newPod("a", "a1"))
		w.set(d)
		time.Sleep(10 * time.Second)
		w.set(deleted(d, 5*time.Second, 0))
		time.Sleep(10 * time.Second)
		status, gone := w.told(t, "a1")
		if !gone || w.reports["a1"].Status.Phase != v1.PodSucceeded {
			t.Fatalf("it isn't told as gone: %s", status)
		}
		for range 60 {
			w.pool.WakeAll()
			finalizer := deleted(d, 5*time.Second, 0) // somebody edits its finalizers
			w.set(finalizer)
			time.Sleep(time.Minute)
		}
		if now, gone := w.told(t, "a1"); now != status || !gone {
			t.Errorf("an hour later %s is told instead of %s", now, status)
		}
		if w.count(&w.log, entry("a1", pod.AdmitPod)) != 1 || len(w.Get("a1").Containers) != 1 || w.checkpoints["a1"] == nil {
			t.Errorf("another pod began, or its containers went: %v", w.log)
		}
		w.set()
		time.Sleep(10 * time.Second)
		if now, _ := w.told(t, "a1"); now != "" || w.Get("a1") != nil || w.checkpoints["a1"] != nil || w.pool.Count() != 0 {
			t.Errorf("something is left of it: %v", w.log)
		}
	})
}

// Whenever the agent dies after the last container has ended, the next one tells what was told, byte for byte.
func TestTheFinalStatusOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kills := 0
		for life, over := 50*time.Millisecond, false; !over; life += 50 * time.Millisecond {
			w := bareWorld()
			close(w.known)
			stop := w.start(t)
			d := withVolume(object(newPod("a", "a1")))
			w.set(d)
			time.Sleep(10 * time.Second)
			w.set(deleted(d, 5*time.Second, 0))
			time.Sleep(life)
			stop()
			kills++
			before, wasGone := w.told(t, "a1")
			final := pod.Terminal(w.reports["a1"].Status.Phase) != ""
			time.Sleep(time.Minute)
			w2 := w.successor(deleted(d, 5*time.Second, 0))
			w2.start(t)
			for range 40 {
				time.Sleep(50 * time.Millisecond)
				if now, _ := w2.told(t, "a1"); final && now != "" && now != before {
					t.Fatalf("killed after %s: %s is told after %s", life, now, before)
				}
			}
			if status, gone := w2.told(t, "a1"); !gone || w2.count(&w2.log, entry("a1", pod.CreateContainer)) != 0 {
				t.Fatalf("killed after %s: it isn't gone, or began anew: %s %v", life, status, w2.log)
			}
			over = wasGone
		}
		if kills < 8 {
			t.Errorf("the agent was killed %d times only", kills)
		}
	})
}

// maxFinalBytes is what the final status of a pod whose object is still there may take, in memory and in its checkpoint.
const maxFinalBytes = 4 << 10

// What is known of pods goes with them.
func TestManyPodsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		stop := w.start(t)
		const rounds, each = 100, 100
		for round := range rounds {
			pods, ending := make([]*pod.Desired, each), make([]*pod.Desired, each)
			for i := range pods {
				pods[i] = object(newPod(fmt.Sprintf("p%d", i), types.UID(fmt.Sprintf("%d-%d", round, i))))
			}
			w.set(pods...)
			time.Sleep(2 * time.Second)
			for i := range pods {
				ending[i] = deleted(pods[i], time.Second, 0)
			}
			w.set(ending...)
			time.Sleep(2 * time.Second)
			status, gone := w.told(t, types.UID(fmt.Sprintf("%d-0", round)))
			if !gone {
				t.Fatalf("round %d: the pods haven't ended", round)
			}
			kept, err := json.Marshal(w.checkpoints[types.UID(fmt.Sprintf("%d-0", round))])
			if err != nil {
				t.Fatal(err)
			}
			if len(status) > maxFinalBytes || len(kept) > maxFinalBytes {
				t.Fatalf("the final status takes %d bytes, the checkpoint %d, want at most %d: %s", len(status), len(kept), maxFinalBytes, kept)
			}
		}
		w.set()
		time.Sleep(10 * time.Second)
		stop()
		p := w.pool
		if n := len(p.workers) + len(p.waiting) + len(p.unknown) + len(p.returning) + len(w.reports) + len(w.checkpoints) + len(w.runtime); n != 0 {
			t.Errorf("%d workers, %d waiting, %d unknown, %d reports, %d checkpoints, %d in the runtime are left of %d pods",
				len(p.workers), len(p.waiting), len(p.unknown), len(w.reports), len(w.checkpoints), len(w.runtime), rounds*each)
		}
	})
}
