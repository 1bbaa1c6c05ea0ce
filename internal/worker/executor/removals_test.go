package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// database is a runtime that writes all removals to one database, one after the other.
type database struct {
	*sandboxWorld
	Logs
	write time.Duration
	disk  chan struct{} // holds one writer

	mu            sync.Mutex
	running, most int
	removed       []string
}

func (d *database) remove(id string) error {
	d.mu.Lock()
	d.running++
	d.most = max(d.most, d.running)
	d.mu.Unlock()
	d.disk <- struct{}{}
	time.Sleep(d.write)
	<-d.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	d.removed = append(d.removed, id)
	return nil
}

func (d *database) RemoveContainer(_ context.Context, id string) error    { return d.remove(id) }
func (d *database) RemovePodSandbox(_ context.Context, id string) error   { return d.remove(id) }
func (d *database) StopPodSandbox(_ context.Context, id string) error     { return d.remove("stop " + id) }
func (d *database) ContainerRemoved(string)                               {}
func (d *database) SandboxRemoved(string)                                 {}
func (d *database) SandboxStopped(string)                                 {}
func (d *database) SandboxCreated(types.UID, string, string, pod.Sandbox) {}
func (d *database) Remove(layout.Pod, layout.Instance) error              { return nil }
func (d *database) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	return nil, status.Errorf(codes.NotFound, "no container %s", id)
}

func (d *database) executor() *Executor {
	r := d.runner()
	cfg := r.cfg
	cfg.Runtime, cfg.Observer, cfg.Logs, cfg.Log = d, d, d, logr.Discard()
	return New(cfg)
}

var (
	living = &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "living"}}}
	// deadInstances is a running pod with dead instances.
	deadInstances = func(n int) *pod.Observed {
		o := &pod.Observed{UID: "living", Name: "p", Namespace: "n", Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxReady}}}
		for i := range n {
			o.Containers = append(o.Containers, pod.Container{ID: fmt.Sprint("c", i), Name: "c", SandboxID: "s", State: pod.ContainerExited})
		}
		return o
	}
)

// TestFewRemovalsAtOnce: all dead containers are removed, at most ten at a time, those of pods that are gone first.
func TestFewRemovalsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{sandboxWorld: &sandboxWorld{}, write: time.Millisecond, disk: make(chan struct{}, 1)}
		r := d.executor()
		o := deadInstances(500)
		var wg sync.WaitGroup
		do := func(desired *pod.Desired, o *pod.Observed, a pod.Action) {
			wg.Go(func() {
				if got := r.Do(t.Context(), desired, o, "u", a); got.Failure != nil {
					t.Error(got.Failure)
				}
			})
		}
		for i := range o.Containers {
			do(living, o, pod.Action{Kind: pod.RemoveContainer, Container: "c", ID: o.Containers[i].ID})
		}
		synctest.Wait()
		for i := range 100 {
			do(nil, nil, pod.Action{Kind: pod.RemoveSandbox, ID: fmt.Sprint("gone", i)})
		}
		wg.Wait()
		if d.most != mostRemovals || len(d.removed) != 600 {
			t.Errorf("%d removals, up to %d at once, want 600 and %d", len(d.removed), d.most, mostRemovals)
		}
		last := 0
		for i, id := range d.removed {
			if strings.HasPrefix(id, "gone") {
				last = i
			}
		}
		if last >= 100+2*mostRemovals {
			t.Errorf("the last pod that is gone is removed at position %d", last)
		}
	})
}

// TestBusyRuntimeRemovesFewer: a runtime whose answers slow down gets fewer removals at once, so that another request
// doesn't wait for ten of them.
func TestBusyRuntimeRemovesFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{sandboxWorld: &sandboxWorld{}, write: 40 * time.Millisecond, disk: make(chan struct{}, 1)}
		r := d.executor()
		o := deadInstances(400)
		var wg sync.WaitGroup
		for i := range o.Containers {
			wg.Go(func() {
				r.Do(t.Context(), living, o, "u", pod.Action{Kind: pod.RemoveContainer, Container: "c", ID: o.Containers[i].ID})
			})
		}
		time.Sleep(2 * time.Second)
		d.mu.Lock()
		d.most = 0
		d.mu.Unlock()
		wg.Wait()
		if d.most > 3 || len(d.removed) != 400 {
			t.Errorf("%d removals, up to %d at once", len(d.removed), d.most)
		}
	})
}

// TestFailedRemovals: a removal that failed soon doesn't make those that succeed look slow, nor does one that failed late.
func TestFailedRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemovals()
		for i, took := range []time.Duration{time.Millisecond, time.Second, 2 * slowRemoval, 2 * slowRemoval} {
			failure := errors.New("refused")
			if i > 1 {
				failure = nil
			}
			err := r.do(t.Context(), priorityDeadInstance, func() error { time.Sleep(took); return failure })
			if !errors.Is(err, failure) || r.limit != mostRemovals {
				t.Errorf("removal %d: %v; %d at once, want %d", i, err, r.limit, mostRemovals)
			}
		}
	})
}

// TestNothingWaitsForDeadContainers: while removals of dead containers hang, pods start and end, and instances that
// block the next one are removed.
func TestNothingWaitsForDeadContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{sandboxWorld: &sandboxWorld{}, disk: make(chan struct{}, 1)}
		d.disk <- struct{}{} // until the end
		r := d.executor()
		o := deadInstances(50)
		o.Containers = append(o.Containers, pod.Container{ID: "created", Name: "c", SandboxID: "s", State: pod.ContainerCreated})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		do := func(desired *pod.Desired, a pod.Action) {
			wg.Go(func() { r.Do(ctx, desired, o, "u", a) })
		}
		for i := range 50 {
			do(living, pod.Action{Kind: pod.RemoveContainer, Container: "c", ID: o.Containers[i].ID})
			do(nil, pod.Action{Kind: pod.RemoveSandbox, ID: fmt.Sprint("gone", i)})
		}
		synctest.Wait()
		if d.running != mostRemovals {
			t.Errorf("%d removals at once", d.running)
		}
		if got := r.Do(ctx, living, o, "living", pod.Action{Kind: pod.CreateSandbox}); got.Failure != nil || got.ID != "sandbox" {
			t.Errorf("%+v", got.Failure)
		}
		do(living, pod.Action{Kind: pod.RemoveContainer, Container: "c", ID: "created"})
		do(living, pod.Action{Kind: pod.RemoveSandbox, ID: "s"})
		do(living, pod.Action{Kind: pod.StopSandbox, ID: "s"})
		synctest.Wait()
		if want := mostRemovals + 3; d.running != want {
			t.Errorf("%d calls in the runtime, want %d", d.running, want)
		}
		cancel()
		<-d.disk
		wg.Wait()
	})
}
