package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// world is desired set, runtime, effects and readers of status in one.
type world struct {
	objectsAt atomic.Int64
	mu        sync.Mutex
	pods      []*pod.Desired
	synced    bool
	// localSynced is set where the local sources have reported alone.
	localSynced bool
	// stopped and allStopped are those of the set.
	stopped    []*pod.Desired
	allStopped bool
	changed    chan struct{}
	known      chan struct{}
	runtime    map[types.UID]*pod.Observed
	pool       *Pool
	nextID     int
	log        []string
	// hold blocks the first effect of a kind on a pod until its channel is closed.
	hold         map[string]chan struct{}
	leftovers    []types.UID
	sparesOthers bool
	reports      map[types.UID]pod.Report
	// late is what the runtime turns out to have of the next pod whose worker has
	// ended; nobody is woken for it.
	late *pod.Observed
	// looks counts how often the wanted set was read.
	looks int
	// restarted counts the calls of Restarted.
	restarted map[bool]int
	// checkpoints are what pods' workers had written, results those of their probes.
	checkpoints map[types.UID]*pod.Checkpoint
	results     map[types.UID][]pod.ProbeResult
	// asked has each set of probes that was asked for, journal each record.
	asked   []string
	journal []string
	// terminations holds those of pods, events what was recorded of pods, gone those that are gone.
	terminations map[types.UID]*pod.PodTermination
	events       []string
	gone         []types.UID
	// rejects has the pods that aren't admitted.
	rejects map[types.UID]bool
	// cleaning, if set, is why pods' files can't be removed.
	cleaning *pod.Failure
	// graces are those that containers were given to stop.
	graces []time.Duration
	// core, if set, takes the place of the core.
	core func(lifecycle.Input) lifecycle.Decision
	// clockSteps are the steps of the clock so far.
	clockSteps []pod.ClockStep
}

// prober, grants and diary are the world's probes, allocations and journal.
type prober struct{ *world }

func (w prober) Want(uid types.UID, p *v1.Pod, _ *pod.Observed, ip string, probes []pod.Probe) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, fmt.Sprintf("%s %s %s %v", uid, p.Labels["v"], ip, probes))
}

func (w prober) Results(uid types.UID) []pod.ProbeResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.world.results[uid]
}

func (w prober) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, string(uid)+" forgotten")
}

type grants struct{}

func (grants) Get(types.UID) *pod.Allocation { return nil }

func (grants) Health(types.UID) map[string][]v1.ResourceStatus { return nil }

type diary struct{ *world }

func (w diary) Open(uid types.UID, _ string) Record { return page{w.world, uid} }
func (w diary) Close(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, string(uid)+" closed")
}

type page struct {
	*world
	uid types.UID
}

func (p page) Decision(_ lifecycle.Input, d lifecycle.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range d.Actions {
		p.journal = append(p.journal, fmt.Sprintf("%s %s", p.uid, a.Kind))
	}
}

func (p page) Failed(lifecycle.Input, error) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal = append(p.journal, string(p.uid)+" failed")
	return "there"
}

func (w *world) Checkpoint(uid types.UID) *pod.Checkpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkpoints[uid]
}

func newWorld(t *testing.T) *world {
	w := bareWorld()
	close(w.known)
	w.start(t)
	return w
}

// bareWorld has no pool yet, and a runtime that isn't known yet.
func bareWorld() *world {
	return &world{synced: true, restarted: map[bool]int{}, changed: make(chan struct{}, 1), known: make(chan struct{}), runtime: map[types.UID]*pod.Observed{},
		hold: map[string]chan struct{}{}, reports: map[types.UID]pod.Report{}, checkpoints: map[types.UID]*pod.Checkpoint{}, terminations: map[types.UID]*pod.PodTermination{}, results: map[types.UID][]pod.ProbeResult{}}
}

// start runs a pool on the world until the test ends or stop is called.
func (w *world) start(t *testing.T) (stop func()) {
	w.pool = New(NewWaker(), Config{Desired: w, Observed: w, Executor: w, Probes: prober{w}, Allocations: grants{}, Journal: diary{w}, Statuses: w, Recorder: w, Meter: w, Node: func() lifecycle.Node {
		return lifecycle.Node{ObjectsAt: time.Unix(0, w.objectsAt.Load()), ClockSteps: w.clockSteps}
	}, Terminators: []PodTerminator{{w.termination, w.forgetTermination}}, KeepUnknownPods: w.sparesOthers, Resync: time.Hour, Log: logr.Discard()})
	if w.core != nil {
		w.pool.core = w.core
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = w.pool.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (w *world) Current() *desired.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return &desired.Set{Pods: slices.Clone(w.pods), Stopped: slices.Clone(w.stopped), AllStopped: w.allStopped, Synced: w.synced, LocalSynced: w.localSynced}
}
func (w *world) Subscribe() (<-chan struct{}, func())  { return w.changed, func() {} }
func (w *world) Synced() <-chan struct{}               { return w.known }
func (w *world) LoggedAttempts(*v1.Pod) map[string]int { return nil }
func (w *world) Leftovers() ([]types.UID, error)       { return w.leftovers, nil }
func (w *world) Decided(time.Duration)                 {}
func (w *world) Running(time.Duration, time.Duration)  {}
func (w *world) Added(int, time.Duration)              {}
func (w *world) ContainerEnded(string, int32, string)  {}
func (w *world) Orphaned()                             {}
func (w *world) Restarted(static bool)                 { w.mu.Lock(); w.restarted[static]++; w.mu.Unlock() }
func (w *world) Publish(uid types.UID, r pod.Report)   { w.mu.Lock(); w.reports[uid] = r; w.mu.Unlock() }

func (w *world) Event(p *v1.Pod, e pod.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", p.UID, e.Type, e.Reason, e.Message))
}

func (w *world) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.reports, uid)
	if w.late != nil {
		w.runtime[uid], w.late = w.late, nil
	}
}

func (w *world) Get(uid types.UID) *pod.Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.runtime[uid]
	if o == nil {
		return nil
	}
	c := *o
	c.Containers, c.Sandboxes = slices.Clone(o.Containers), slices.Clone(o.Sandboxes)
	return &c
}

func (w *world) UIDs() (list []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.runtime {
		list = append(list, uid)
	}
	return list
}

// set makes these the wanted pods.
func (w *world) set(pods ...*pod.Desired) {
	w.mu.Lock()
	w.pods = pods
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *world) Do(ctx context.Context, d *pod.Desired, _ *pod.Observed, uid types.UID, a pod.Action) pod.Result {
	w.mu.Lock()
	gate := w.hold[string(uid)+"/"+string(a.Kind)]
	if a.Kind == pod.StopContainer {
		w.graces = append(w.graces, a.Grace)
	}
	w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return pod.Result{Failure: &pod.Failure{Reason: "Cancelled", Message: ctx.Err().Error()}}
		}
	}
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, entry(uid, a.Kind))
	if a.Kind == pod.AdmitPod && w.rejects[uid] {
		return pod.Result{Failure: &pod.Failure{Reason: "OutOfcpu", Rejected: true}}
	}
	if a.Kind == pod.CleanPod && w.cleaning != nil {
		return pod.Result{Failure: w.cleaning}
	}
	return pod.Result{ID: w.effect(d, uid, a)}
}

func (w *world) effect(d *pod.Desired, uid types.UID, a pod.Action) string {
	var p *v1.Pod
	if d != nil {
		p = d.Pod
	}
	w.nextID++
	id := fmt.Sprintf("id%d", w.nextID)
	o := w.runtime[uid]
	switch a.Kind {
	case pod.CreateSandbox:
		w.runtime[uid] = &pod.Observed{UID: uid, Name: p.Name, Namespace: p.Namespace,
			Sandboxes: []pod.Sandbox{{ID: id, State: pod.SandboxReady, CreatedAt: time.Now(), IPs: []string{"10.0.0.1"}}}}
	case pod.CreateContainer:
		o.Containers = slices.Insert(o.Containers, 0, pod.Container{ID: id, Name: a.Container, SandboxID: a.SandboxID, State: pod.ContainerCreated, Attempt: a.Attempt, Image: pod.ContainerNamed(p, a.Container).Image})
	case pod.StartContainer:
		o.Containers[0].State, o.Containers[0].StartedAt = pod.ContainerRunning, time.Now()
	case pod.StopContainer:
		for i := range o.Containers {
			o.Containers[i].State, o.Containers[i].FinishedAt = pod.ContainerExited, time.Now()
		}
	case pod.RemoveSandbox:
		delete(w.runtime, uid)
	case pod.SaveCheckpoint:
		w.checkpoints[uid] = a.Checkpoint
	case pod.CleanPod:
		delete(w.checkpoints, uid)
	}
	return id
}

func (w *world) running(uid types.UID) bool {
	o := w.Get(uid)
	return o != nil && len(o.Containers) > 0 && o.Containers[0].State == pod.ContainerRunning
}

// entry is how an action of a pod is logged.
func entry(uid types.UID, kind pod.ActionKind) string { return string(uid) + " " + string(kind) }

// position is the index of the first such action in the log, -1 for none.
func (w *world) position(uid types.UID, kind pod.ActionKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Index(w.log, entry(uid, kind))
}

func newPod(name string, uid types.UID) *pod.Desired {
	grace := int64(5)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid}}
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	p.Spec.Containers = []v1.Container{{Name: "c", Image: "x"}}
	return &pod.Desired{Pod: p, Source: pod.SourceFile}
}

func TestPodComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(newPod("a", "a1"), newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if !w.running("a1") || !w.running("b1") {
			t.Fatal("the pods don't run")
		}
		w.mu.Lock()
		ph := w.reports["a1"].Status.Phase
		w.mu.Unlock()
		if ph != v1.PodRunning {
			t.Fatalf("phase %s is told", ph)
		}
		w.set(newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if w.Get("a1") != nil || w.pool.Count() != 1 {
			t.Fatal("the removed pod is still there")
		}
		if _, told := w.reports["a1"]; told {
			t.Fatal("the removed pod is still told of")
		}
	})
}

func TestNothingIsRemovedBeforeAllSourcesReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		w.synced = false
		w.mu.Unlock()
		w.set()
		time.Sleep(time.Minute)
		if !w.running("a1") {
			t.Fatal("the pod was removed though a source hasn't reported")
		}
	})
}

// TestManifestsDontWaitForAnAPIServer: a static pod that is edited, removed or stopped may be that API server's own.
func TestManifestsDontWaitForAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.synced, w.localSynced = false, true
		w.runtime = remains(true, "b0", "x0") // of an earlier agent: b's manifest was edited meanwhile, x is unknown
		w.runtime["b0"].Namespace, w.runtime["b0"].Name = "default", "b"
		w.runtime["x0"].Namespace, w.runtime["x0"].Name = "default", "x"
		close(w.known)
		w.start(t)
		remote := newPod("remote", "r1")
		remote.Source, remote.RequiresTerminalPhase = pod.SourceAPI, true
		w.set(newPod("a", "a1"), newPod("b", "b1"), newPod("gone", "g1"), newPod("stopped", "s1"), remote)
		time.Sleep(time.Minute)
		if !w.running("a1") || !w.running("b1") || !w.running("g1") || !w.running("r1") {
			t.Fatalf("not all run: %v", w.log)
		}
		if w.Get("b0") != nil {
			t.Errorf("what b was before isn't gone: %v", w.log)
		}
		w.mu.Lock()
		w.stopped = []*pod.Desired{newPod("stopped", "s1")}
		w.mu.Unlock()
		w.set(newPod("a", "a2"), newPod("b", "b1"))
		time.Sleep(time.Minute)
		if w.Get("a1") != nil || !w.running("a2") || w.Get("g1") != nil || w.Get("s1") != nil {
			t.Errorf("a changed manifest waits: %v", w.log)
		}
		if !w.running("r1") || w.Get("x0") == nil {
			t.Errorf("what an API server may want is gone: %v", w.log)
		}
	})
}

func TestNothingStartsBeforeTheRuntimeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.start(t)
		w.set(newPod("a", "a1"))
		time.Sleep(time.Minute)
		if len(w.log) != 0 {
			t.Fatalf("acted blindly: %v", w.log)
		}
		close(w.known)
		time.Sleep(time.Minute)
		if !w.running("a1") {
			t.Fatal("the pod doesn't run")
		}
	})
}

func TestSameNameAddedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		first := w.Get("a1").Sandboxes[0].ID
		w.set()
		synctest.Wait()
		w.set(newPod("a", "a1"))
		time.Sleep(20 * time.Second)
		if !w.running("a1") {
			t.Fatal("the pod that was removed and added doesn't run")
		}
		if w.Get("a1").Sandboxes[0].ID == first {
			t.Fatal("the removal was never carried out")
		}
		if n := w.Get("a1").Containers[0].Attempt; n != 1 {
			t.Errorf("the container that ran before is instance %d, want 1: its restart count must not fall", n)
		}
		// One that is wanted again after it has gone begins anew.
		w.set()
		time.Sleep(time.Minute)
		w.set(newPod("a", "a1"))
		time.Sleep(20 * time.Second)
		if n := w.Get("a1").Containers[0].Attempt; n != 0 {
			t.Errorf("the container of a pod that was gone is instance %d, want 0", n)
		}
		static := w.pods[0].Source.Local()
		if w.restarted[static] != 1 || w.restarted[!static] != 0 {
			t.Errorf("counted as restarted (by static): %v, want one pod, static %v", w.restarted, static)
		}
	})
}

func TestSuccessorWaitsForItsPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		w.set(newPod("a", "a2"))
		time.Sleep(20 * time.Second)
		if !w.running("a2") {
			t.Fatal("the successor doesn't run")
		}
		if cleaned := w.position("a1", pod.CleanPod); cleaned < 0 || cleaned > w.position("a2", pod.PreparePod) {
			t.Fatalf("the successor began before its predecessor was gone: %v", w.log)
		}
	})
}

func TestSuccessorWaitsForAnOrphanOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		stop := w.start(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		stop()
		// Another agent process finds a1 running while the manifest already says a2.
		w2 := bareWorld()
		close(w2.known)
		w2.runtime, w2.nextID = w.runtime, 100
		w2.pods = []*pod.Desired{newPod("a", "a2")}
		w2.start(t)
		time.Sleep(20 * time.Second)
		if cleaned := w2.position("a1", pod.CleanPod); !w2.running("a2") || cleaned < 0 || cleaned > w2.position("a2", pod.AdmitPod) {
			t.Fatalf("the order is wrong: %v", w2.log)
		}
	})
}

// An agent that asks no API server can't tell whether that wants a pod. One whose name a
// manifest wants is another agent's static pod, and gives way.
func TestPodsThatOthersMayWantAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		stop := w.start(t)
		w.set(newPod("api", "api1"), newPod("static", "s1"), newPod("mine", "m1"))
		time.Sleep(10 * time.Second)
		stop()
		w2 := bareWorld()
		close(w2.known)
		w2.runtime, w2.nextID, w2.sparesOthers = w.runtime, 100, true
		w2.leftovers = []types.UID{"api1", "gone"}
		w2.pods = []*pod.Desired{newPod("static", "s2"), newPod("mine", "m1")}
		w2.start(t)
		time.Sleep(20 * time.Second)
		if !w2.running("api1") || w2.running("s1") || !w2.running("s2") || !w2.running("m1") || w2.position("gone", pod.CleanPod) >= 0 {
			t.Fatalf("not what was to be spared: %v", w2.log)
		}
		// What was wanted in this agent's life isn't spared.
		w2.set(newPod("static", "s2"))
		time.Sleep(20 * time.Second)
		if !w2.running("api1") || w2.running("m1") {
			t.Fatalf("not what was to be taken down: %v", w2.log)
		}
	})
}

func TestSlowPodDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold["a1/EnsureImage"] = make(chan struct{})
		w.set(newPod("a", "a1"), newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if w.running("a1") || !w.running("b1") {
			t.Fatal("b should run, and a wait for its image")
		}
		// The waiting pod can be stopped: its pull is given up.
		w.set(newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if w.Get("a1") != nil {
			t.Fatal("the pod that waited for its image isn't gone")
		}
	})
}

func TestLeftoversAreCleanedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.leftovers = []types.UID{"old", "a1"}
		w.pods = []*pod.Desired{newPod("a", "a1")}
		close(w.known)
		w.start(t)
		time.Sleep(time.Minute)
		if w.position("old", pod.CleanPod) < 0 || w.position("a1", pod.CleanPod) >= 0 || !w.running("a1") {
			t.Fatalf("only what nobody wants is cleaned: %v", w.log)
		}
	})
}

func TestStopWaitsForActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.hold["a1/EnsureImage"] = make(chan struct{})
		close(w.known)
		stop := w.start(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		begun := time.Now()
		stop()
		if time.Since(begun) > time.Second {
			t.Fatalf("stopping took %s", time.Since(begun))
		}
	})
}

func TestManyPodsEndWithoutLookingAtAllForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		w := newWorld(t)
		var pods []*pod.Desired
		for i := range n {
			pods = append(pods, newPod(fmt.Sprintf("p%d", i), types.UID(fmt.Sprintf("u%d", i))))
		}
		w.set(pods...)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		w.looks = 0
		w.mu.Unlock()
		w.set()
		time.Sleep(20 * time.Second)
		if w.pool.Count() != 0 {
			t.Fatalf("%d pods are left", w.pool.Count())
		}
		if w.looks > n/10 {
			t.Errorf("every pod was looked at %d times", w.looks)
		}
	})
}

func TestWhatAppearsAsItsWorkerEndsIsTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		w.late = &pod.Observed{UID: "a1", Name: "a", Namespace: "default", Sandboxes: []pod.Sandbox{{ID: "late", State: pod.SandboxReady}}}
		w.mu.Unlock()
		w.set()
		time.Sleep(20 * time.Second)
		if w.Get("a1") != nil {
			t.Fatal("a late sandbox was left alone")
		}
	})
}

func TestSpecChangesWhileTheWorkerBegins(t *testing.T) {
	w := newWorld(t) // in real time, for the race detector
	for range 100 {
		w.set(newPod("a", "a1"))
	}
}

// TestPodsAreThoseThatMayBegin: who asks for the pods gets all that one change brought, whether each is being stopped, and
// none that waits for its predecessor.
func TestPodsAreThoseThatMayBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pods := func() map[types.UID]bool {
			stopping := map[types.UID]bool{}
			w.pool.Pods(func(p *v1.Pod, s bool) bool { stopping[p.UID] = s; return true })
			return stopping
		}
		w.set(newPod("a", "a1"), newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if got := pods(); !maps.Equal(got, map[types.UID]bool{"a1": false, "b1": false}) {
			t.Errorf("there are %v", got)
		}
		w.hold["a1/CleanPod"] = make(chan struct{})
		w.set(newPod("a", "a2"), newPod("b", "b1"))
		time.Sleep(10 * time.Second)
		if got := pods(); !maps.Equal(got, map[types.UID]bool{"a1": true, "b1": false}) {
			t.Errorf("while the predecessor ends there are %v", got)
		}
		close(w.hold["a1/CleanPod"])
		time.Sleep(20 * time.Second)
		if got := pods(); !maps.Equal(got, map[types.UID]bool{"a2": false, "b1": false}) {
			t.Errorf("after that there are %v", got)
		}
		w.pool.Pods(func(*v1.Pod, bool) bool { return false }) // which ends it
	})
}

// TestEditOfARejectedPod: of a pod that the node didn't admit nothing is there to be edited in place, so another version
// of its manifest is asked about anew.
func TestEditOfARejectedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.rejects = map[types.UID]bool{"a1": true}
		w.set(newPod("a", "a1"))
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		st := w.reports["a1"].Status
		delete(w.rejects, "a1")
		w.mu.Unlock()
		if st == nil || st.Phase != v1.PodFailed || st.Reason != "OutOfcpu" || len(st.ContainerStatuses) > 0 {
			t.Fatalf("told %+v", st)
		}
		time.Sleep(10 * time.Minute)
		if w.running("a1") {
			t.Fatal("a rejected pod was admitted later")
		}
		edited := newPod("a", "a1")
		edited.Pod.Generation = 2
		w.set(edited)
		time.Sleep(20 * time.Second)
		if !w.running("a1") {
			t.Fatalf("its next version doesn't run: %v", w.log)
		}
	})
}

// TestEditOfARejectedPodWhileNoAgentRan: what an earlier agent kept is about the version that it rejected.
func TestEditOfARejectedPodWhileNoAgentRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		w.rejects = map[types.UID]bool{"a1": true}
		w.pods = []*pod.Desired{newPod("a", "a1")}
		stop := w.start(t)
		time.Sleep(10 * time.Second)
		stop()

		for generation, want := range map[int64]bool{newPod("a", "a1").Pod.Generation: false, 2: true} {
			w2 := bareWorld()
			close(w2.known)
			w2.checkpoints = maps.Clone(w.checkpoints)
			d := newPod("a", "a1")
			d.Pod.Generation = generation
			w2.pods = []*pod.Desired{d}
			stop := w2.start(t)
			time.Sleep(20 * time.Second)
			if w2.running("a1") != want {
				t.Errorf("generation %d runs: %v, %v", generation, !want, w2.log)
			}
			stop()
		}
	})
}

// TestEditAsAPodIsRejected: the edit comes while the core decides upon the answer to the version before.
func TestEditAsAPodIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		close(w.known)
		w.rejects = map[types.UID]bool{"a1": true}
		edit := sync.OnceFunc(func() {
			w.mu.Lock()
			delete(w.rejects, "a1")
			w.mu.Unlock()
			edited := newPod("a", "a1")
			edited.Pod.Generation = 2
			w.set(edited)
			time.Sleep(time.Second)
		})
		w.core = func(in lifecycle.Input) lifecycle.Decision {
			d := lifecycle.Decide(in)
			if k := d.Memory.Checkpoint; k != nil && k.Termination != nil {
				edit()
			}
			return d
		}
		w.start(t)
		w.set(newPod("a", "a1"))
		time.Sleep(20 * time.Second)
		if !w.running("a1") {
			t.Errorf("the edited pod doesn't run: %v", w.log)
		}
	})
}

// TestFailureJustBeforeTheCancellation: the answer was there already, but nobody had read it.
func TestFailureJustBeforeTheCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := pod.Action{Kind: pod.AdmitPod}
	w := &worker{flights: []flight{{action: a, ctx: ctx, cancel: cancel}}}
	results := []pod.Result{{Action: a, Failure: &pod.Failure{Rejected: true}}}
	cancel()
	w.collectResults(results)
	if !results[0].Cancelled || len(w.flights) != 0 {
		t.Errorf("%+v, %+v", results[0], w.flights)
	}
}

// A pod that a person has stopped ends with what its spec says, whoever began it, and comes again when it is started.
func TestStoppedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.sparesOthers = true
		close(w.known)
		stop := w.start(t)
		a := newPod("a", "a1")
		w.set(a)
		time.Sleep(10 * time.Second)
		// The agent ends, and finds the pod stopped: its worker has the pod's spec.
		stop()
		w.stopped = []*pod.Desired{a}
		w.set()
		w.start(t)
		time.Sleep(50 * time.Millisecond)
		if !w.pool.left("default/a") {
			t.Error("nobody stops the pod")
		}
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		graces := slices.Clone(w.graces)
		w.mu.Unlock()
		if w.Get("a1") != nil || w.pool.left("default/a") || !slices.Equal(graces, []time.Duration{5 * time.Second}) {
			t.Errorf("the pod is there: %v, stopped with %v", w.Get("a1"), graces)
		}
		w.stopped = nil
		w.set(a)
		time.Sleep(10 * time.Second)
		if !w.running("a1") {
			t.Error("the pod wasn't started again")
		}
	})
}

// When all are stopped, that is so before all sources have reported. What is left alone else still is.
func TestAllStopped(t *testing.T) {
	for _, spares := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := bareWorld()
			w.sparesOthers, w.synced = spares, false
			w.leftovers = []types.UID{"l1"}
			w.runtime["u1"] = &pod.Observed{UID: "u1", Name: "u", Namespace: "default", Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxReady}}}
			close(w.known)
			w.start(t)
			w.set(newPod("a", "a1"))
			time.Sleep(10 * time.Second)
			if !w.running("a1") || w.Get("u1") == nil || w.position("l1", pod.CleanPod) >= 0 || !w.pool.anyLeft() {
				t.Fatal("not what the test is about")
			}
			asked := time.Now()
			if w.pool.Heartbeat().After(asked) {
				t.Error("the pool has looked already")
			}
			w.mu.Lock()
			w.allStopped = true
			w.mu.Unlock()
			time.Sleep(time.Millisecond)
			w.set()
			time.Sleep(10 * time.Second)
			if w.Get("a1") != nil || (w.Get("u1") != nil) != spares || (w.position("l1", pod.CleanPod) < 0) != spares || w.pool.anyLeft() || !w.pool.Heartbeat().After(asked) {
				t.Errorf("unknown pods are spared: %v; left: %v, %d workers, %v", spares, w.UIDs(), w.pool.Count(), w.log)
			}
		})
	}
}

// TestFilesOnAFailedDisk: files that can't be removed from a disk that fails don't keep a stop of all from ending. Files
// that can't be removed for another reason do.
func TestFilesOnAFailedDisk(t *testing.T) {
	for _, disk := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := bareWorld()
			close(w.known)
			w.start(t)
			w.set(newPod("a", "a1"))
			time.Sleep(10 * time.Second)
			w.mu.Lock()
			w.allStopped, w.cleaning = true, &pod.Failure{Reason: "FailedKillPod", Message: "read-only file system", Disk: disk}
			w.mu.Unlock()
			w.set()
			time.Sleep(10 * time.Second)
			if w.pool.anyLeft() == disk || w.pool.Count() != 1 || w.Get("a1") != nil {
				t.Errorf("a disk fails: %v; left: %v, %d workers, %v", disk, w.pool.anyLeft(), w.pool.Count(), w.log)
			}
			w.mu.Lock()
			w.cleaning = nil
			w.mu.Unlock()
			time.Sleep(time.Minute)
			if w.pool.anyLeft() || w.pool.Count() != 0 {
				t.Errorf("a disk failed: %v; left: %d workers, %v", disk, w.pool.Count(), w.log)
			}
		})
	}
}
