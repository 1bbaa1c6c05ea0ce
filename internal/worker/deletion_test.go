package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		w2 := bareWorld()
		close(w2.known)
		w2.runtime, w2.checkpoints, w2.hold = w.runtime, w.checkpoints, w.hold
		w2.pods = []*pod.Desired{deleted(d, 600*time.Second, 0)}
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
			if w.position("a2 AdmitPod") >= 0 {
				t.Errorf("%s: its successor began: %v", name, w.log)
			}
			close(w.hold["a1/StopContainer"])
			time.Sleep(10 * time.Second)
			if w.Get("a1") != nil || !w.running("a2") || w.checkpoints["a1"] != nil {
				t.Errorf("%s: it isn't gone, or its successor doesn't run: %v", name, w.log)
			}
			if n := w.count(&w.log, "a1 Keep"); n != countIn(saved, "a1 Keep") {
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
