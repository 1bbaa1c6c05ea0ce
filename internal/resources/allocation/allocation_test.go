package allocation_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
)

var errDisk = errors.New("disk full")

// disk is a real store that can be made to fail, or to wait.
type disk struct {
	*checkpoint.Store
	mu       sync.Mutex
	fails    bool
	durable  map[types.UID]bool
	entered  chan types.UID // if set, Save tells it is there,
	proceeds chan struct{}  // and waits
}

func (d *disk) Save(uid types.UID, kind string, v any, durable bool) error {
	d.mu.Lock()
	fails, entered, proceeds := d.fails, d.entered, d.proceeds
	d.durable[uid] = durable
	d.mu.Unlock()
	if entered != nil {
		entered <- uid
		<-proceeds
	}
	if fails {
		return errDisk
	}
	return d.Store.Save(uid, kind, v, durable)
}

func (d *disk) fail(fails bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fails
}

// node has 4 CPUs and 1000 Mi.
type node struct {
	*allocation.Manager
	t    *testing.T
	disk *disk
	// store is the disk, unless a test has another one.
	store allocation.Store
	mu    sync.Mutex
	wake  []types.UID
	// pods are those that should run, runs and ended what is known of pods of an earlier agent.
	pods  []allocation.Pod
	runs  map[types.UID]bool
	ended map[types.UID]bool
	left  []types.UID
	meter meter
	facts admission.Node
	// plugins are asked before others.
	plugins, others plugins
	// impatient says that pods don't wait for plugins, lives which pods have a container that runs.
	impatient bool
	lives     map[types.UID]bool
}

// plugins answers for the manager of devices, and counts what is released.
type plugins struct {
	allocation.Assigner
	mu                 sync.Mutex
	answer             error
	assigned, released []types.UID
	unallocatable      map[v1.ResourceName]int64
	absent             string
}

func (p *plugins) Restore() error { return nil }

func (p *plugins) Fixes(*v1.Pod, *pod.Allocation, *pod.Allocation) (why, detail string) {
	return "", ""
}

func (p *plugins) Awaits(*v1.Pod) *pod.Failure {
	if p.absent == "" {
		return nil
	}
	return &pod.Failure{Wait: pod.WaitForPlugin, Message: "the device plugin of " + p.absent}
}

func (p *plugins) Unallocatable() map[v1.ResourceName]int64 { return p.unallocatable }

func (p *plugins) Assign(_ context.Context, w *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assigned = append(p.assigned, w.UID)
	return p.answer
}

func (p *plugins) Release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, uid)
}

func newNode(t *testing.T) *node {
	n := &node{t: t, disk: &disk{Store: checkpoint.New(filepath.Join(t.TempDir(), "pods")), durable: map[types.UID]bool{}}, runs: map[types.UID]bool{}, ended: map[types.UID]bool{}}
	n.store = n.disk
	n.restart()
	return n
}

func (n *node) restart() {
	n.t.Helper()
	patience := 5 * time.Minute
	if n.impatient {
		patience = 0
	}
	n.Manager = allocation.New(allocation.Config{
		Store:       n.store,
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1000Mi"), v1.ResourcePods: resource.MustParse("500")},
		Node:        func() *admission.Node { return &n.facts },
		Pods:        func(yield func(allocation.Pod) bool) { slices.Values(n.pods)(yield) },
		Runs:        func(uid types.UID) bool { return n.runs[uid] },
		Ended:       func(uid types.UID) (bool, error) { return n.ended[uid], nil },
		Left:        func() ([]types.UID, error) { return n.left, nil },
		Assigners:   []allocation.Assigner{&n.plugins, &n.others}, Patience: map[pod.WaitFor]time.Duration{pod.WaitForPlugin: patience},
		Lives: func(uid types.UID) bool { return n.lives[uid] },
		Wake: func(uid types.UID) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.wake = append(n.wake, uid)
		},
		Meter: &n.meter,
		Log:   logr.Discard(),
	})
	if err := n.Restore(); err != nil {
		n.t.Fatal(err)
	}
}

// makePod requests so many thousandths of a CPU and Mi of memory.
func makePod(uid types.UID, milli, mi int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), Namespace: "default", UID: uid, Generation: 1}}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(mi<<20, resource.BinarySI),
	}}}}
	p.Status.QOSClass = v1.PodQOSBurstable
	return p
}

func ranked(p *v1.Pod, priority int32, qos v1.PodQOSClass) *v1.Pod {
	p.Spec.Priority, p.Status.QOSClass = &priority, qos
	return p
}

func (n *node) admit(pods ...*v1.Pod) {
	n.t.Helper()
	for _, p := range pods {
		if _, err := n.Admit(n.t.Context(), p); err != nil {
			n.t.Fatal(err)
		}
	}
}

// has checks what the pod was granted, now and after a restart.
func (n *node) has(p *v1.Pod) {
	n.t.Helper()
	for range 2 {
		if got := n.Get(p.UID); !allocated.Equal(got, allocated.Of(p)) || got != nil && got.Generation != p.Generation {
			n.t.Errorf("pod %s has %+v, want %+v", p.UID, got, allocated.Of(p))
		}
		n.restart()
	}
}

func (n *node) granted(p *v1.Pod) {
	n.t.Helper()
	a, err := n.Resize(p)
	if err != nil || !allocated.Equal(a, allocated.Of(p)) || n.Get(p.UID) != a {
		n.t.Errorf("resize of pod %s: %+v, %v", p.UID, a, err)
	}
}

// refused checks the failure's reason, and its message if that is given.
// shrunk grants less, which is in force then.
func (n *node) shrunk(p *v1.Pod) {
	n.t.Helper()
	n.granted(p)
	n.MarkActuated(p.UID)
}

func (n *node) refused(p *v1.Pod, reason pod.Reason, message string) {
	n.t.Helper()
	before := n.Get(p.UID)
	a, err := n.Resize(p)
	var f *pod.Failure
	if !errors.As(err, &f) || f.Reason != reason || message != "" && f.Message != message || f.Permanent != (reason == "Infeasible") || a != nil {
		n.t.Errorf("resize of pod %s: %+v, %#v; want %s: %s", p.UID, a, err, reason, message)
	}
	if n.Get(p.UID) != before {
		n.t.Errorf("pod %s was refused, but its allocation changed", p.UID)
	}
}

// woken takes the pods woken since the last time.
func (n *node) woken(want ...types.UID) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.wake, want) {
		n.t.Errorf("woken: %v, want %v", n.wake, want)
	}
	n.wake = nil
}

// room reports whether RoomAt moved while f ran.
func (n *node) room(want bool, f func()) {
	n.t.Helper()
	before := n.ResourcesFreedAt()
	f()
	if after := n.ResourcesFreedAt(); after.Before(before) || after.After(before) != want {
		n.t.Errorf("RoomAt went from %v to %v, want it later: %v", before, after, want)
	}
}

func TestAdmitGrantsTheSpecOnce(t *testing.T) {
	n := newNode(t)
	p := makePod("a", 500, 100)
	if got := n.Get("a"); got != nil {
		t.Errorf("before it is admitted: %+v", got)
	}
	n.admit(p)
	n.has(p)
	n.admit(makePod("a", 900, 100)) // the spec has moved on, the allocation hasn't
	n.has(p)
	n.runs["huge"] = true // what runs is let in, whatever there is room for
	n.admit(makePod("huge", 9000, 5000))
	n.has(makePod("huge", 9000, 5000))
	if n.disk.durable["a"] {
		t.Error("admission waits for the disk")
	}
}

func TestResize(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("a", 500, 100), makePod("b", 1500, 300))
	bigger := makePod("a", 2500, 700)
	bigger.Generation = 2
	n.granted(bigger)
	if !n.disk.durable["a"] {
		t.Error("a resize would not survive a loss of power")
	}
	n.has(bigger)
	limited := makePod("a", 2500, 700)
	limited.Generation = 3
	limited.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("64")}
	n.granted(limited) // only requests have to fit
	if got := n.Holdings(); len(got) != 2 || got["a"].Requests[v1.ResourceCPU] != 2500 || got["a"].Allocation.Generation != 3 || got["b"].Requests[v1.ResourceMemory] != 300<<20 || got["b"].Requests[v1.ResourcePods] != 1 {
		t.Errorf("pods hold %+v", got)
	}
	same := limited.DeepCopy()
	same.Generation = 4
	n.granted(same)
	n.has(same)
	n.granted(makePod("new", 0, 0)) // not admitted: is admitted
	n.has(makePod("new", 0, 0))
	n.woken()
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("a", 500, 100), makePod("b", 1500, 300))
	n.refused(makePod("a", 8000, 100), "Infeasible", "Node didn't have enough capacity: cpu, requested: 8, capacity: 4")
	n.refused(makePod("a", 8000, 1001), "Infeasible",
		"Node didn't have enough capacity: cpu, requested: 8, capacity: 4; memory, requested: 1001Mi, capacity: 1000Mi")
	n.refused(makePod("a", 2501, 100), "Deferred", "Node didn't have enough resource: cpu, requested: 2501m, used: 1500m, capacity: 4")
	n.refused(makePod("a", 2500, 701), "Deferred", "Node didn't have enough resource: memory, requested: 701Mi, used: 300Mi, capacity: 1000Mi")
	n.granted(makePod("a", 2500, 700))
	n.woken()
}

func TestOverheadAndPodLevelCount(t *testing.T) {
	n := newNode(t)
	p := makePod("a", 500, 100)
	n.admit(p)
	p = p.DeepCopy()
	p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3500m")}}
	p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("501m")}
	n.refused(p, "Infeasible", "Node didn't have enough capacity: cpu, requested: 4001m, capacity: 4")
	p.Spec.Overhead[v1.ResourceCPU] = resource.MustParse("500m")
	n.granted(p)
	n.has(p)
}

// A RuntimeClass may give a pod its overhead after it was admitted.
func TestOverheadThatComesLateCounts(t *testing.T) {
	n := newNode(t)
	p := makePod("a", 500, 100)
	n.admit(p, makePod("b", 500, 100))
	p = p.DeepCopy()
	p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2500m")}
	const refusal = "Node didn't have enough resource: cpu, requested: 1001m, used: 3, capacity: 4"
	for range 2 {
		n.admit(p)
		n.refused(makePod("b", 1001, 100), "Deferred", refusal)
		n.restart()
	}
	// Its spec as a whole is asked for by a resize, not by this.
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("600m")
	n.admit(p)
	n.refused(makePod("b", 1001, 100), "Deferred", refusal)
}

// A pod whose RuntimeClass is gone, or not read yet after a restart, takes what it took.
func TestOverheadOutlivesItsClass(t *testing.T) {
	n := newNode(t)
	p := makePod("a", 500, 100)
	p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2500m"), v1.ResourceMemory: resource.MustParse("10")}
	n.admit(p, makePod("b", 500, 100))
	p = p.DeepCopy()
	p.Spec.Overhead = nil
	const refusal = "Node didn't have enough resource: cpu, requested: 1001m, used: 3, capacity: 4"
	for range 2 {
		n.restart()
		n.admit(p)
		n.refused(makePod("b", 1001, 100), "Deferred", refusal)
		if l := allocated.PodLimits(p, n.Get("a")); l.CPUMilli != 3000 {
			t.Errorf("its control group has %+v", l)
		}
	}
	p.Generation, p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = 2, resource.MustParse("101")
	if a, err := n.Resize(p); err != nil || a.Generation != 2 || a.Total.Cpu().MilliValue() != 3000 || a.Total.Memory().Value() != 111 {
		t.Errorf("resized to %+v, error %v", a, err)
	}
}

func TestWhatDoesNotGrowIsNeverRefused(t *testing.T) {
	n := newNode(t)
	n.runs["over"], n.runs["other"] = true, true
	n.admit(makePod("over", 6000, 500), makePod("other", 1000, 600)) // more than there is
	n.shrunk(makePod("over", 5000, 500))
	n.shrunk(makePod("over", 5000, 400))
	n.refused(makePod("over", 5000, 401), "Deferred", "Node didn't have enough resource: memory, requested: 401Mi, used: 600Mi, capacity: 1000Mi")
	n.refused(makePod("over", 5001, 300), "Infeasible", "")
	n.refused(makePod("other", 1001, 100), "Deferred", "")
}

func TestRoomWakesWhoFitsInOrder(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("full", 3000, 100))
	names := []types.UID{"low", "besteffort", "late", "early", "guaranteed", "important"}
	pods := map[types.UID]*v1.Pod{}
	for _, uid := range names {
		n.admit(makePod(uid, 0, 10))
		pods[uid] = makePod(uid, 1500, 10)
	}
	n.admit(makePod("filler", 1000, 10))
	ranked(pods["low"], -5, v1.PodQOSGuaranteed)
	ranked(pods["besteffort"], 0, v1.PodQOSBestEffort)
	ranked(pods["guaranteed"], 0, v1.PodQOSGuaranteed)
	ranked(pods["important"], 1000, v1.PodQOSBestEffort)
	for _, uid := range []types.UID{"low", "early", "besteffort", "late", "guaranteed", "important", "early"} {
		n.refused(pods[uid], "Deferred", "")
	}
	n.woken()
	n.room(true, func() { n.Forget("full") })
	n.woken("important", "guaranteed") // two of them fit
	for _, uid := range []types.UID{"important", "guaranteed"} {
		n.granted(pods[uid])
	}
	n.room(true, func() { n.Forget("filler") }) // 1000: nobody fits
	n.woken()
	n.Forget("important")
	n.woken("early")
	n.granted(pods["early"])
	n.Forget("guaranteed")
	n.woken("late")
	n.Forget("late") // it leaves the line
	n.woken("besteffort")
	n.granted(pods["besteffort"])
	n.woken()
	n.granted(makePod("early", 500, 10)) // shrinks, but what it had isn't free yet
	n.woken()
	n.MarkActuated("early")
	n.woken("low")
	n.granted(pods["low"])
	n.woken()
}

func TestNewcomersGoBehindWhoFitsBeforeThem(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("full", 2000, 10), makePod("high", 1000, 10), makePod("low", 500, 10))
	high := ranked(makePod("high", 3000, 10), 10, v1.PodQOSBurstable)
	n.refused(high, "Deferred", "")
	n.Forget("full")
	n.woken("high")
	low := makePod("low", 1500, 10) // 2500 are free, 2000 of them are high's by right
	n.refused(low, "Deferred", "Node didn't have enough resource: cpu, requested: 1500m, used: 3, capacity: 4")
	n.granted(makePod("low", 1000, 10)) // what fits beside high's is granted
	n.granted(high)
	n.refused(low, "Deferred", "")
	// One of high rank that doesn't fit keeps nobody from growing.
	n.shrunk(ranked(makePod("high", 2000, 10), 10, v1.PodQOSBurstable))
	n.woken("low")
	n.refused(ranked(makePod("high", 3500, 10), 10, v1.PodQOSBurstable), "Deferred", "")
	n.granted(low)
}

func TestAResizeThatIsGivenUpMakesWay(t *testing.T) {
	for name, giveUp := range map[string]func(n *node){
		"asks for what it has":  func(n *node) { n.granted(makePod("high", 500, 10)) },
		"asks for the moon":     func(n *node) { n.refused(makePod("high", 50_000, 10), "Infeasible", "") },
		"asks for more":         func(n *node) { n.refused(ranked(makePod("high", 4000, 10), 10, v1.PodQOSBurstable), "Deferred", "") },
		"is gone":               func(n *node) { n.Forget("high") },
		"has ended":             func(n *node) { n.Release("high") },
		"is content with less":  func(n *node) { n.granted(makePod("high", 600, 10)) },
		"shrinks, on the whole": func(n *node) { n.granted(makePod("high", 100, 10)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.admit(makePod("full", 2500, 10), makePod("high", 500, 10), makePod("low", 500, 10))
			n.refused(ranked(makePod("high", 2500, 10), 10, v1.PodQOSBurstable), "Deferred", "")
			n.refused(makePod("low", 2500, 10), "Deferred", "")
			n.Forget("full")
			n.woken("high")
			n.room(true, func() { giveUp(n) })
			n.woken("low")
			n.granted(makePod("low", 2500, 10))
		})
	}
}

func TestOfferedAgainWhenRoomComesBack(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("full", 3000, 10), makePod("a", 500, 10))
	want := makePod("a", 2000, 10)
	n.refused(want, "Deferred", "")
	n.Forget("full")
	n.woken("a")
	n.admit(makePod("next", 3000, 10)) // takes it away
	n.refused(want, "Deferred", "")
	n.Forget("next")
	n.woken("a")
	n.admit(makePod("third", 3000, 10)) // and again, before a came
	n.Forget("third")
	n.granted(want)
}

func TestReleaseKeepsTheAllocation(t *testing.T) {
	n := newNode(t)
	done := makePod("done", 4000, 10)
	n.admit(done, makePod("a", 0, 10))
	n.refused(makePod("a", 1000, 10), "Deferred", "")
	n.room(true, func() { n.Release("done") })
	n.room(false, func() { n.Release("done") })
	n.woken("a")
	n.granted(makePod("a", 1000, 10))
	n.granted(makePod("done", 4000, 20)) // takes nothing
	n.has(makePod("done", 4000, 20))
}

func TestResourcesFreedAtMovesOnlyWhenThereIsRoom(t *testing.T) {
	n := newNode(t)
	if !n.ResourcesFreedAt().IsZero() {
		t.Errorf("at start: %v", n.ResourcesFreedAt())
	}
	n.room(false, func() { n.admit(makePod("a", 500, 10), makePod("b", 500, 10), makePod("none", 0, 0)) })
	n.room(false, func() { n.granted(makePod("a", 1000, 20)) })
	n.room(false, func() { n.refused(makePod("a", 4000, 20), "Deferred", "") })
	n.room(false, func() { n.Forget("unknown") })
	n.room(true, func() { n.Forget("none") }) // its place among the pods
	n.room(false, func() { n.granted(makePod("a", 2000, 19)) })
	n.room(true, func() { n.MarkActuated("a") })
	n.room(false, func() { n.MarkActuated("a"); n.MarkActuated("unknown") })
	for range 100 { // faster than any clock
		n.admit(makePod("b", 500, 10))
		n.room(true, func() { n.Forget("b") })
	}
}

func TestNothingChangesUnlessWritten(t *testing.T) {
	n := newNode(t)
	old := makePod("a", 500, 100)
	n.admit(old, makePod("b", 0, 10))
	n.disk.fail(true)
	if _, err := n.Resize(makePod("a", 4000, 100)); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "default/pod-a") {
		t.Errorf("got %v", err)
	}
	if _, err := n.Admit(t.Context(), makePod("new", 100, 10)); err != nil || n.Get("new") == nil {
		t.Errorf("a full disk keeps a pod from running: %v", err)
	}
	n.Forget("new")
	n.disk.fail(false)
	n.granted(makePod("b", 3500, 10)) // nothing was taken
	n.has(old)
}

func TestWhatIsBeingWrittenIsTaken(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("a", 500, 10), makePod("b", 500, 10))
	n.disk.mu.Lock()
	n.disk.entered, n.disk.proceeds = make(chan types.UID), make(chan struct{})
	n.disk.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { n.granted(makePod("a", 3500, 10)) })
	<-n.disk.entered
	if got := n.Get("a"); !allocated.Equal(got, allocated.Of(makePod("a", 500, 10))) {
		t.Errorf("granted before it was written: %+v", got)
	}
	n.refused(makePod("b", 501, 10), "Deferred", "")
	n.disk.mu.Lock()
	n.disk.fails = true // has no effect on what is under way
	n.disk.mu.Unlock()
	close(n.disk.proceeds)
	wg.Wait()
	n.woken()
}

func TestAFailedWriteIsRoomForOthers(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("a", 500, 10), makePod("b", 500, 10))
	n.disk.mu.Lock()
	n.disk.fails, n.disk.entered, n.disk.proceeds = true, make(chan types.UID), make(chan struct{})
	n.disk.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := n.Resize(makePod("a", 3500, 10)); !errors.Is(err, errDisk) {
			t.Error(err)
		}
	})
	<-n.disk.entered
	n.refused(makePod("b", 501, 10), "Deferred", "")
	close(n.disk.proceeds)
	wg.Wait()
	n.woken("b")
}

func TestRestoreReportsBadRecordsAndGoesOn(t *testing.T) {
	n := newNode(t)
	n.admit(makePod("good", 500, 10))
	for uid, v := range map[types.UID]any{"bad": "text", "hollow": nil} {
		if err := n.disk.Store.Save(uid, "allocation", v, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.disk.Store.Save("other", "kept", 1, false); err != nil {
		t.Fatal(err)
	}
	m := allocation.New(allocation.Config{Store: n.disk, Ended: func(types.UID) (bool, error) { return false, nil }, Left: func() ([]types.UID, error) { return nil, nil }, Assigners: []allocation.Assigner{&n.plugins}, Wake: func(types.UID) {}, Log: logr.Discard()})
	if err := m.Restore(); err == nil || !strings.Contains(err.Error(), "pod bad") {
		t.Errorf("got %v", err)
	}
	for uid, want := range map[types.UID]bool{"good": true, "bad": false, "hollow": false, "other": false} {
		if got := m.Get(uid) != nil; got != want {
			t.Errorf("%s has an allocation: %v", uid, got)
		}
	}
}

// TestManyWorkers grows and shrinks pods at random; nobody may ever get what isn't there.
func TestManyWorkers(t *testing.T) {
	n := newNode(t)
	const pods, each = 8, 100
	size := make([]int64, pods) // what each holds
	var mu sync.Mutex
	set := func(i int, milli int64) {
		mu.Lock()
		defer mu.Unlock()
		size[i] = milli
		sum := int64(0)
		for _, s := range size {
			sum += s
		}
		if sum > 4000 {
			t.Errorf("%d thousandths of 4 CPUs are granted: %v", sum, size)
		}
	}
	var wg sync.WaitGroup
	for i := range pods {
		uid := types.UID(fmt.Sprint(i))
		n.admit(makePod(uid, 0, 1))
		wg.Go(func() {
			for round := range each {
				want := int64((i*37+round*613)%20) * 100
				if round%25 == 24 {
					set(i, 0)
					n.Forget(uid)
					n.admit(makePod(uid, 0, 1))
					continue
				}
				if want < size[i] { // what is given up may be another's at once
					set(i, want)
				}
				if _, err := n.Resize(ranked(makePod(uid, want, 1), int32(i%3), v1.PodQOSBurstable)); err == nil {
					set(i, want)
				}
			}
		})
	}
	wg.Wait()
	for i := range pods {
		n.Forget(types.UID(fmt.Sprint(i)))
	}
	n.admit(makePod("all", 0, 0))
	n.granted(makePod("all", 4000, 1000))
}

func TestAllocatableChanges(t *testing.T) {
	n := newNode(t)
	of := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	n.admit(makePod("a", 1000, 10), makePod("b", 1000, 10), makePod("c", 1000, 10))
	n.refused(makePod("a", 3000, 10), "Deferred", "")
	n.refused(makePod("b", 5000, 10), "Infeasible", "Node didn't have enough capacity: cpu, requested: 5, capacity: 4")
	n.room(false, func() { n.NodeChanged(of("4", "1000Mi"), nil) })
	n.room(false, func() { n.NodeChanged(of("2", "1000Mi"), nil) }) // less than is held
	n.wants(makePod("a", 1000, 10), makePod("b", 1000, 10), makePod("c", 1000, 10))
	n.says(makePod("new", 100, 10), "rejected OutOfcpu")
	for _, uid := range []types.UID{"a", "b", "c"} {
		if e := n.Termination(uid); e != nil {
			t.Errorf("%s has to end for it: %+v", uid, e)
		}
	}
	n.granted(makePod("c", 1000, 10))
	n.refused(makePod("a", 3000, 10), "Infeasible", "Node didn't have enough capacity: cpu, requested: 3, capacity: 2")
	n.room(true, func() { n.NodeChanged(of("4", "1000Mi"), nil) })
	n.refused(makePod("a", 3000, 10), "Deferred", "")
	n.woken()
	n.room(true, func() { n.NodeChanged(of("9", "1000Mi"), nil) })
	n.woken("a")
	n.granted(makePod("a", 3000, 10))
	n.granted(makePod("b", 5000, 10))
}

// meter keeps what it is told.
type meter struct {
	mu   sync.Mutex
	told []string
}

func (m *meter) tell(parts ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, strings.Join(parts, " "))
}

func (m *meter) Rejected(reason pod.Reason)    { m.tell("rejected", string(reason)) }
func (m *meter) Preempted(resource string)     { m.tell("preempted for", resource) }
func (m *meter) ResizeInfeasible(why string)   { m.tell("infeasible:", why) }
func (m *meter) ResizeAccepted(trigger string) { m.tell("accepted after", trigger) }
func (m *meter) ResizeRequested(resource, requirement, operation string) {
	m.tell(operation, resource, requirement)
}

func (m *meter) Resized(took time.Duration, failed bool) {
	if took < 0 {
		m.tell("negative")
	}
	m.tell("resized", fmt.Sprint(!failed))
}

// Each edit is counted once, however often it is tried.
func TestResizesAreCounted(t *testing.T) {
	n := newNode(t)
	told := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, n.meter.told); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		n.meter.told = nil
	}
	a, b := makePod("a", 1000, 100), makePod("b", 2500, 100)
	n.admit(a)
	n.admit(b)
	told()

	edited := makePod("a", 2000, 50)
	edited.Generation = 2
	for range 3 {
		if _, err := n.Resize(edited); err == nil {
			t.Fatal("it was resized")
		}
	}
	told("increase cpu requests", "decrease memory requests")
	n.Forget("b")
	if _, err := n.Resize(edited); err != nil {
		t.Fatal(err)
	}
	n.MarkFailed("a")
	n.MarkActuated("a")
	n.MarkActuated("a")
	n.MarkFailed("a")
	told("accepted after pods_removed", "resized false", "resized true")

	huge := makePod("a", 5000, 50)
	if _, err := n.Resize(huge); err == nil {
		t.Fatal("it was resized")
	}
	told("increase cpu requests", "infeasible: insufficient_node_allocatable")
}
