package agent

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/journal"
)

// wakes connect parts that have to wake each other. They are built before those parts, because the parts depend on each
// other in a circle: the observed state wakes the workers, and the workers read the observed state.
type wakes struct {
	*worker.Waker
	// images is the last time at which images arrived. objects is the last time at which objects that pods refer to,
	// or volumes of pods, changed. Workers compare both with the times of their previous decisions.
	images, objects moment
	// disks is the last time at which a disk that couldn't be written got room.
	disks moment
	// writers wakes the parts that write files for which no pod waits, at these times.
	writers wake.Group
	// runtime is the last time at which the container runtime answered again. answered says that it has answered once.
	runtime  moment
	answered atomic.Bool
	// full wakes the part that evicts pods after a write has failed because a disk is full.
	full wake.Slot
	// pods wakes the functions of wakeOnPods after the runtime's state of a pod has changed. volumes wakes the volumes
	// with content from an object, by object.
	pods    wake.Slot
	volumes *wake.Keyed[pod.Object]
}

func newWakes() *wakes {
	return &wakes{Waker: worker.NewWaker(), full: wake.NewSlot(), pods: wake.NewSlot(),
		volumes: wake.NewKeyed[pod.Object]()}
}

// podChanged wakes the pod's worker and the functions of wakeOnPods.
func (w *wakes) podChanged(uid types.UID) {
	w.Wake(uid)
	w.pods.Wake()
}

// wakeOnPods returns a function that calls every function in look after the runtime's state of pods has changed,
// until its context ends.
func (w *wakes) wakeOnPods(look ...func()) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.pods:
			}
			for _, l := range look {
				l()
			}
		}
	}
}

// imagesArrived wakes the workers, as pods may wait for an image.
func (w *wakes) imagesArrived() {
	w.images.now()
	w.WakeAll()
}

// diskFreed wakes the writers whose files couldn't be written, and the workers, as pods may wait for room on a disk.
func (w *wakes) diskFreed() {
	w.disks.now()
	w.writers.Wake()
	w.WakeAll()
}

// answersGap is the shortest time between two retries of all calls that the runtime didn't answer: one of these calls
// may be the reason why it crashes.
const answersGap = 30 * time.Second

// runtimeAnswers wakes the workers, as pods may wait for the runtime.
func (w *wakes) runtimeAnswers() {
	if w.answered.Swap(true) && time.Since(w.runtime.time()) >= answersGap {
		w.runtime.now()
	}
	w.WakeAll()
}

// objectsChanged wakes the pods that wait for one of these objects, and the volumes with content from one of them.
// The zero object stands for any object.
func (w *wakes) objectsChanged(changed ...pod.Object) {
	if len(changed) > 0 {
		w.objects.now()
		w.WakeAwaiting(changed...)
		w.volumes.Wake(changed...)
	}
}

// claimsFreed wakes the pods that wait for a PersistentVolumeClaim.
func (w *wakes) claimsFreed() {
	w.objectsChanged(pod.Object{Kind: string(object.PersistentVolumeClaim)})
}

// specChanged refreshes the downwardAPI volumes of a pod.
func (w *wakes) specChanged(p *v1.Pod) {
	w.volumes.Wake(pod.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name})
}

// admissible yields the pods that have workers, as worker.Waker.Pods does, but in the form that the ledger of
// allocations needs.
func (w *wakes) admissible(yield func(allocation.Pod) bool) {
	w.Pods(func(p *v1.Pod, stopping bool) bool { return yield(allocation.Pod{Pod: p, Ending: stopping}) })
}

// followFacts returns the module that wakes every part that depends on node facts whenever one changes. It also records
// the events of changes after its start.
func followFacts(facts *nodefacts.Board, allocations *allocation.Manager, w *wakes, node events.Node) modules.Module {
	var before admission.Pressure
	start := func() error { before = facts.Now().Pressure; return nil }
	run := func(ctx context.Context) error {
		changed, stop := facts.Watch(
			nodefacts.HostIPs | nodefacts.Labels | nodefacts.Allocatable | nodefacts.AwaitedPlugins | nodefacts.Advertised | nodefacts.DeclaredFeatures)
		defer stop()
		pressure, stopPressure := facts.Watch(nodefacts.Pressure)
		defer stopPressure()
		for wakes := false; ; {
			now := facts.Now() // includes changes from before the subscriptions
			for _, e := range nodeobject.PressureEvents(node.Name, before, now.Pressure) {
				node.Event(e)
			}
			before = now.Pressure
			allocations.NodeChanged(forPods(now))
			if wakes {
				w.claimsFreed()                  // PersistentVolumes may have node affinity
				w.volumes.Wake(volumestate.Node) // downwardAPI volumes show allocatable amounts as default limits
				// Pod statuses contain the node's addresses, and resizes may fit now. That is why NodeChanged is called
				// first.
				w.WakeAll()
			}
			select {
			case <-ctx.Done():
				return nil
			case <-pressure:
				wakes = false // matters for admission only
			case <-changed:
				wakes = true
			}
		}
	}
	return modules.Module{Name: "node facts", Start: without(start), Run: run}
}

// forPods returns the resources for pods, and the resources whose device plugin hasn't registered yet. An extended
// resource that only the node's object has was written there by an administrator. At its start, the agent sets the
// amounts of all such resources in the object to 0, so 0 means that a plugin or an administrator has yet to write the
// amount.
func forPods(f *nodefacts.Facts) (v1.ResourceList, map[v1.ResourceName]bool) {
	there, awaited := maps.Clone(f.Allocatable), maps.Clone(f.AwaitedPlugins)
	for name, amount := range f.Advertised {
		_, own := there[name]
		switch {
		case own || awaited[name]:
		case amount.IsZero():
			if awaited == nil {
				awaited = map[v1.ResourceName]bool{}
			}
			awaited[name] = true
		default:
			if there == nil {
				there = v1.ResourceList{}
			}
			there[name] = amount
		}
	}
	return there, awaited
}

// followDevices returns a function that updates the node's amounts of devices whenever they change, until its context
// ends.
func followDevices(assigned *devices.Manager, n *node) func(context.Context) error {
	return func(ctx context.Context) error {
		for looked := time.Now(); ; looked = time.Now() {
			n.setDevices(assigned.Amounts())
			if !assigned.AwaitChange(ctx, looked) {
				return nil
			}
		}
	}
}

// moment is the time at which something last happened. It increases strictly even if the clock is set back, because
// readers compare it with earlier values. It is safe for concurrent use.
type moment struct{ nanoseconds atomic.Int64 }

// now records an occurrence.
func (m *moment) now() {
	for {
		before := m.nanoseconds.Load()
		if m.nanoseconds.CompareAndSwap(before, max(before+1, time.Now().UnixNano())) {
			return
		}
	}
}

func (m *moment) time() time.Time { return time.Unix(0, m.nanoseconds.Load()) }

// follower updates the parts that depend on the content of manifests. Workers aren't among them.
type follower struct {
	merger    *desired.Merger
	additions *desired.Additions
	claims    *binder.Binder
	podsKnown func()
	changed   func() // is called after each change of the desired set
	wakes     *wakes
	journal   *journal.Journal
	collector *gc.Collector
	log       logr.Logger
}

// run follows the desired set until ctx ends.
func (f follower) run(ctx context.Context) error {
	changed, end := f.merger.Subscribe()
	defer end()
	last, swept := &desired.Set{}, false
	for {
		set := f.merger.Current()
		if err := f.additions.Tidy(); err != nil {
			f.log.Error(err, "Can't forget what was added to pods that are gone")
		}
		if changed := set.Objects.Changed(last.Objects); len(changed) > 0 {
			// Tidy is only needed for removed manifests of volumes. The binder detects by itself when pods that used a
			// claim end.
			if err := f.claims.Tidy(ctx); err != nil {
				f.log.Error(err, "Can't release PersistentVolumes whose manifests were removed")
			}
			f.wakes.objectsChanged(changed...)
		}
		for _, d := range set.Pods {
			if last.Get(d.Pod.UID) != d {
				f.wakes.specChanged(d.Pod)
			}
		}
		if set.Synced && !swept {
			swept = true
			f.podsKnown()
			// An earlier agent's journals are removed if their pods no longer exist.
			f.journal.Sweep(func(uid types.UID) bool { return set.Has(uid) })
			f.collector.Wake() // the set of wanted images wasn't complete before
		}
		f.changed()
		last = set
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
