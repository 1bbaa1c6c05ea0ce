package worker

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Waker wakes the workers of a pool and lists their pods. It exists before the pool does: the modules that
// wake workers, such as the observed state or the allocations, are those that workers read. Its methods never block,
// and may be called from anywhere at any time.
type Waker struct {
	mu sync.Mutex
	// workers are the pool's, which alone adds and removes them.
	workers map[types.UID]*worker
	// awaiting are those whose pods wait for an object (pod.Failure.Awaits), by that.
	awaiting map[pod.Object]map[*worker]struct{}

	// look gets a value when a pod without a worker was seen, or one whose worker
	// can't do what is wanted.
	look wake.Slot
}

// NewWaker makes a Waker for one pool.
func NewWaker() *Waker {
	return &Waker{workers: map[types.UID]*worker{}, awaiting: map[pod.Object]map[*worker]struct{}{},
		look: wake.NewSlot()}
}

// Wake has the pod looked at again.
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

// WakeAll has every pod looked at again; see Wake.
func (k *Waker) WakeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		w.signal.Wake()
	}
}

// WakeAwaiting has those pods looked at again that wait for one of these objects (pod.Failure.Awaits), or for any
// object that one of them is: to be called after Config.Node returns the later ObjectsAt. An object without a name is
// any of its kind, in its namespace if it has one, the zero object any at all.
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

// setAwaiting has WakeAwaiting wake the worker for these objects, and no others any more.
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

// Pods yields the pods that workers look after, each with whether it is being stopped, or has ended and gives back what
// it holds: all of those that one change of the desired set brought. A pod that waits for its predecessor to end isn't
// among them.
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
