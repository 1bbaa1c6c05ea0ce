package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is what the runtime has. It is only valid during the call it is given to.
type State struct {
	// Pods by sandbox ID.
	Pods map[string]*WatchedPod
}

// WatchedPod is one sandbox with its containers, as the last event about it has it.
type WatchedPod struct {
	Sandbox    *runtimeapi.PodSandboxStatus
	Containers []*runtimeapi.ContainerStatus
}

// Running counts the containers that run.
func (s State) Running() int {
	n := 0
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				n++
			}
		}
	}
	return n
}

// Empty reports whether there is no pod.
func (s State) Empty() bool { return len(s.Pods) == 0 }

// Find returns the running container with that name and attempt, or nil.
func (s State) Find(container string, attempt uint32) *runtimeapi.ContainerStatus {
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			if c.GetMetadata().GetName() == container && c.GetMetadata().GetAttempt() == attempt &&
				c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				return c
			}
		}
	}
	return nil
}

// Watcher follows the events of a runtime. Its methods may be called concurrently.
type Watcher struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	state   State
	waiters map[*waiter]struct{}
	err     error
}

type waiter struct {
	until func(State) bool
	at    chan time.Time // one slot
}

// StartWatcher subscribes to the events of cri. It knows nothing of what was there
// before; start it on an empty runtime. Stop ends it.
func StartWatcher(ctx context.Context, cri runtimeapi.RuntimeServiceClient) (*Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch runtime events: %w", err)
	}
	w := &Watcher{
		cancel: cancel, done: make(chan struct{}),
		state: State{Pods: make(map[string]*WatchedPod)}, waiters: make(map[*waiter]struct{}),
	}
	go func() {
		defer close(w.done)
		for {
			e, err := stream.Recv()
			now := time.Now()
			if err != nil {
				w.fail(err)
				return
			}
			w.apply(e, now)
		}
	}()
	return w, nil
}

// Stop ends the watch. Who still waits gets an error.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.done
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = fmt.Errorf("watch runtime events: %w", err)
	for waiter := range w.waiters {
		close(waiter.at)
	}
	clear(w.waiters)
}

func (w *Watcher) apply(e *runtimeapi.ContainerEventResponse, now time.Time) {
	id := e.GetPodSandboxStatus().GetId()
	if id == "" {
		return // an event without a snapshot says nothing about a pod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT && e.GetContainerId() == id {
		delete(w.state.Pods, id)
	} else {
		w.state.Pods[id] = &WatchedPod{Sandbox: e.GetPodSandboxStatus(), Containers: e.GetContainersStatuses()}
	}
	for _, waiter := range slices.Collect(maps.Keys(w.waiters)) {
		if waiter.until(w.state) {
			waiter.at <- now
			delete(w.waiters, waiter)
		}
	}
}

// AwaitFor is Await for so long at most; what is waited for is in the error.
func (w *Watcher) AwaitFor(ctx context.Context, patience time.Duration, what string, until func(State) bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := w.Await(ctx, until)
	if err != nil {
		return at, fmt.Errorf("wait until %s: %w", what, err)
	}
	return at, nil
}

// Await waits until the runtime's state is as wanted and returns when the event
// came that made it so, or now if it is so already. until must be quick.
func (w *Watcher) Await(ctx context.Context, until func(State) bool) (time.Time, error) {
	w.mu.Lock()
	if until(w.state) {
		w.mu.Unlock()
		return time.Now(), nil
	}
	if w.err != nil {
		defer w.mu.Unlock()
		return time.Time{}, w.err
	}
	waiting := &waiter{until: until, at: make(chan time.Time, 1)}
	w.waiters[waiting] = struct{}{}
	w.mu.Unlock()

	select {
	case at, ok := <-waiting.at:
		if !ok {
			return time.Time{}, errors.New("the runtime's event stream ended")
		}
		return at, nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters, waiting)
		return time.Time{}, fmt.Errorf("%w; now %d pods, %d containers running", ctx.Err(), len(w.state.Pods), w.state.Running())
	}
}
