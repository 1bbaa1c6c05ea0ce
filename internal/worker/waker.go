package worker

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Waker wakes the workers of a pool and lists their pods. It is created before the pool, because the observed state,
// the allocations and other modules wake workers, and workers read these modules. Its methods never block and are safe
// for concurrent use.
type Waker struct {
	mu sync.Mutex
	// workers are the pool's workers; only the pool adds and removes them.
	workers map[types.UID]*worker
	// awaiting has, by object, the workers of the pods that wait for this object (pod.Failure.Awaits).
	awaiting map[pod.Object]map[*worker]struct{}

	// look wakes the pool's loop: a pod without a worker was observed, or a worker waits for the pool to act.
	look wake.Slot
}

// NewWaker returns a Waker for one pool.
func NewWaker() *Waker {
	return &Waker{workers: map[types.UID]*worker{}, awaiting: map[pod.Object]map[*worker]struct{}{},
		look: wake.NewSlot()}
}

// Wake wakes the pod's worker, or the pool if it has none.
func (k *Waker) Wake(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.signal.Wake()
		return
	}
	k.look.Wake()
}

// WakeAll wakes all workers.
func (k *Waker) WakeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		w.signal.Wake()
	}
}

// WakeAwaiting wakes the pods that wait for one of these objects (pod.Failure.Awaits), or for a group of objects
// that includes one of them. An object without a name stands for all objects of its kind, in its namespace if that
// is set; the zero object stands for all objects. Before the call, the ObjectsAt that Config.Node returns must have
// been updated.
func (k *Waker) WakeAwaiting(changed ...pod.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wake := func(o pod.Object) {
		for w := range k.awaiting[o] {
			w.signal.Wake()
		}
	}
	for _, o := range changed {
		if o.Name != "" {
			wake(o)
			wake(pod.Object{Kind: o.Kind, Namespace: o.Namespace})
			continue
		}
		for awaited := range k.awaiting {
			if o == (pod.Object{}) || o.Kind == awaited.Kind &&
				(o.Namespace == "" || o.Namespace == awaited.Namespace) {
				wake(awaited)
			}
		}
	}
}

// setAwaiting replaces the objects for which WakeAwaiting wakes the worker.
func (k *Waker) setAwaiting(w *worker, objects []pod.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range w.awaits {
		if delete(k.awaiting[o], w); len(k.awaiting[o]) == 0 {
			delete(k.awaiting, o)
		}
	}
	for _, o := range objects {
		if k.awaiting[o] == nil {
			k.awaiting[o] = map[*worker]struct{}{}
		}
		k.awaiting[o][w] = struct{}{}
	}
	w.awaits = objects
}

// Pods yields the pods that have workers. stopping says that the pod is being stopped, or has ended and releases its
// resources. All pods of one change of the desired set appear in the same call. A pod that waits for its predecessor
// to end isn't included.
func (k *Waker) Pods(yield func(p *v1.Pod, stopping bool) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		w.mu.Lock()
		d, stopping := w.desired, w.stop != nil || w.over
		w.mu.Unlock()
		if d != nil && !yield(d.Pod, stopping) {
			return
		}
	}
}
