package worker

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// With thousands of pods, an object that changes costs those alone that wait for one.
func TestChangedObjectsWakeThoseThatWaitForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		var mu sync.Mutex
		decided := map[types.UID]int{}
		w.core = func(in lifecycle.Input) lifecycle.Decision {
			mu.Lock()
			defer mu.Unlock()
			decided[in.Pod.UID]++
			d := lifecycle.Decision{}
			if in.Pod.Name == "waits" && decided[in.Pod.UID] < 3 { // it gets what it waits for with the second change
				d.Memory.Retries = plan.Retries{"CreateSandbox/sandbox": {Failure: pod.Failure{Awaits: pod.Object{Kind: "RuntimeClass", Name: "kata"}}}}
			}
			return d
		}
		w.start(t)
		w.set(newPod("waits", "u1"), newPod("runs", "u2"))
		for range 5 {
			time.Sleep(time.Second)
			w.pool.WakeAwaiting(pod.Object{Kind: "RuntimeClass", Name: "kata"})
			w.pool.WakeAwaiting(pod.Object{Kind: "RuntimeClass", Name: "other"}, pod.Object{Kind: "Secret", Namespace: "default", Name: "kata"})
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(decided); got != "map[u1:3 u2:1]" {
			t.Errorf("decisions by pod: %s", got)
		}
	})
}

// What changes while a pod is being decided about is not missed.
func TestObjectsChangeDuringADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		decided := make(chan int, 10)
		n := 0
		w.core = func(lifecycle.Input) lifecycle.Decision {
			if n++; n == 1 {
				w.objectsAt.Store(1)
				w.pool.WakeAwaiting(pod.Object{Kind: "Secret", Namespace: "default", Name: "s"})
			}
			decided <- n
			d := lifecycle.Decision{}
			d.Memory.Retries = plan.Retries{"start/c": {Failure: pod.Failure{Awaits: pod.Object{Kind: "Secret", Namespace: "default", Name: "s"}}}}
			return d
		}
		w.start(t)
		w.set(newPod("a", "a1"))
		time.Sleep(time.Second)
		if len(decided) != 2 {
			t.Errorf("decided %d times, want 2", len(decided))
		}
	})
}
