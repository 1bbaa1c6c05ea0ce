package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/mirror"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject/podobjecttest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// world is an agent's life with its mirrors, and an API server that outlives it.
type world struct {
	t        *testing.T
	server   *podobjecttest.Server
	statuses *podstatus.Store
	facts    *nodefacts.Writer
	mirrors  *mirror.Mirrors
	reached  wake.Slot
	stop     func()

	mu      sync.Mutex
	wanted  map[string]bool
	calls   []string
	failure error
}

// run has a world with a node in a bubble of time.
func run(t *testing.T, name string, do func(*testing.T, *world)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, server: podobjecttest.NewServer(), wanted: map[string]bool{}}
			w.server.Check = func(c podobjecttest.Call) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.calls = append(w.calls, c.Verb+" "+c.Name)
				return w.failure
			}
			w.begin()
			do(t, w)
			w.stop()
		})
	})
}

// begin begins a life: as after a restart of the agent, nothing is known.
func (w *world) begin() {
	board := nodefacts.NewBoard(nodefacts.Facts{})
	var err error
	if w.facts, err = board.Writer("test", nodefacts.UID); err != nil {
		w.t.Fatal(err)
	}
	w.statuses, w.reached = podstatus.NewStore(), wake.NewSlot()
	cache := podobject.NewCache(w.server, logr.Discard())
	w.mirrors = mirror.New(mirror.Config{Node: "n1", Facts: board, API: w.server, Objects: cache, Statuses: w.statuses, Reached: w.reached, Log: logr.Discard(),
		Awaited: func(_, name string) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.wanted[name]
		}})
	publisher := podobject.NewPublisher(podobject.PublisherConfig{Cache: cache, Statuses: w.statuses, Refusals: &nobody{}, Reached: wake.NewSlot(), Log: logr.Discard()})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{cache.Run, w.mirrors.Run, publisher.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.stop = func() { cancel(); running.Wait() }
	w.node("node-uid")
	synctest.Wait()
}

type nobody struct{ wake.Group }

func (*nobody) Refused() []pod.Refusal { return nil }

func (w *world) node(uid types.UID) { w.facts.Set(func(f *nodefacts.Facts) { f.UID = uid }) }

// want says which pods manifests define.
func (w *world) want(names ...string) {
	w.mu.Lock()
	clear(w.wanted)
	for _, n := range names {
		w.wanted[n] = true
	}
	w.mu.Unlock()
	w.mirrors.Wake()
}

// runs says how a static pod is; it stops if that is set.
func (w *world) runs(name, hash string, phase v1.PodPhase, stops string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(hash), Generation: 1, Annotations: map[string]string{pod.AnnotationConfigHash: hash}}}
	ready := v1.ConditionFalse
	if phase == v1.PodRunning {
		ready = v1.ConditionTrue
	}
	w.statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: pod.SourceFile}, Stopping: stops != "", StoppingWhy: stops, StoppingAt: time.Now(),
		Status: &v1.PodStatus{Phase: phase, ObservedGeneration: 1, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready, ObservedGeneration: 1}}}})
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err
}

// called returns the calls since it was asked last.
func (w *world) called() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func (w *world) expect(what string, want ...string) {
	w.t.Helper()
	if got := w.called(); !slices.Equal(got, want) {
		w.t.Errorf("%s: calls %q, want %q", what, got, want)
	}
}

func TestMirrors(t *testing.T) {
	run(t, "comes, runs and goes", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodPending, "")
		w.expect("begins", "create a") // it is Pending as it was made
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("runs", "patch a")
		m := w.server.Get("default", "a")
		if m.Status.Phase != v1.PodRunning || m.Status.ObservedGeneration != 0 || m.Status.Conditions[0].ObservedGeneration != 0 || m.Status.Conditions[0].Status != v1.ConditionTrue {
			t.Errorf("status %+v", m.Status)
		}
		w.want()
		w.runs("a", "1", v1.PodRunning, "its manifest is gone")
		w.expect("ends")
		w.statuses.Forget("1")
		w.expect("has ended", "delete a")
	})
	run(t, "finished", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodSucceeded, "")
		time.Sleep(time.Hour)
		w.expect("stays", "create a", "patch a")
	})
	run(t, "somebody deletes it", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("begins", "create a", "patch a")
		w.server.Remove("default", "a")
		w.expect("by force", "create a", "patch a")
		m := w.server.Get("default", "a")
		m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.server.Put(m)
		w.expect("with a grace", "delete a", "create a", "patch a")
	})
	run(t, "somebody says that it has failed", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("begins", "create a", "patch a")
		m := w.server.Get("default", "a")
		m.Status.Phase = v1.PodFailed
		w.server.Put(m)
		time.Sleep(time.Minute)
		w.expect("it runs all the same", "delete a", "create a", "patch a")
	})
	run(t, "finished, and started again", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodSucceeded, "")
		w.expect("ends", "create a", "patch a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("runs again", "delete a", "create a", "patch a")
	})
	run(t, "edited", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("begins", "create a", "patch a")
		before := w.server.Get("default", "a").UID
		w.runs("a", "1", v1.PodRunning, "its manifest has changed")
		time.Sleep(19 * time.Second)
		w.expect("the old one ends")
		if m := w.server.Get("default", "a"); m.UID != before || m.Status.Phase != v1.PodRunning {
			t.Errorf("mirror %s, %s", m.UID, m.Status.Phase)
		}
		w.statuses.Forget("1")
		w.expect("between the two")
		w.runs("a", "2", v1.PodPending, "")
		w.expect("the new one begins", "delete a", "create a")
	})
	run(t, "another node object", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("begins", "create a", "patch a")
		w.node("")
		w.expect("the node's object is removed")
		w.node("another")
		w.expect("and made again", "delete a", "create a", "patch a")
	})
	run(t, "the agent is started again", func(t *testing.T, w *world) {
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("begins", "create a", "patch a")
		for range 20 {
			w.stop()
			w.begin()
			w.expect("nothing is known yet")
			w.runs("a", "1", v1.PodRunning, "")
			w.expect("it is known")
		}
		w.stop()
		w.begin()
		w.want()
		w.expect("its manifest is gone meanwhile, and it has ended", "delete a")
	})
}

func TestMirrorsInTrouble(t *testing.T) {
	run(t, "the watch lags", func(t *testing.T, w *world) {
		w.want("a", "b")
		w.server.Hold(true)
		w.runs("a", "1", v1.PodPending, "")
		w.expect("made", "create a")
		w.runs("b", "2", v1.PodPending, "")
		w.runs("a", "1", v1.PodRunning, "")
		w.expect("made once", "create b")
		w.server.Hold(false)
		w.expect("told", "patch a")
		w.server.Remove("default", "a")
		w.expect("removed", "create a", "patch a")
	})
	run(t, "the server is away", func(t *testing.T, w *world) {
		w.fail(apierrors.NewServiceUnavailable("away"))
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		time.Sleep(10 * time.Minute)
		if calls := w.called(); len(calls) < 5 || len(calls) > 30 {
			t.Errorf("%d calls in ten minutes", len(calls))
		}
		w.fail(nil)
		w.reached.Wake()
		time.Sleep(time.Second)
		w.expect("back", "create a", "patch a")
	})
	run(t, "it is refused", func(t *testing.T, w *world) {
		w.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no")))
		w.want("a")
		w.runs("a", "1", v1.PodRunning, "")
		time.Sleep(2 * time.Minute)
		w.called()
		w.fail(nil)
		time.Sleep(time.Minute)
		w.expect("once it is accepted", "create a", "patch a")
	})
	run(t, "many", func(t *testing.T, w *world) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("pod", i))
		}
		w.want(names...)
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning} {
			for i, n := range names {
				w.runs(n, fmt.Sprint(i), phase, "")
			}
			time.Sleep(time.Second)
		}
		count := map[string]int{}
		for _, c := range w.called() {
			count[c[:6]]++
		}
		if count["create"] != 100 || count["patch "] != 100 || count["delete"] != 0 {
			t.Errorf("calls %v", count)
		}
	})
}
