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
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/journal"
)

// wakes are what parts of the agent wake each other by. They are built before those parts, for
// what wakes is what the woken reads: the observed state wakes the workers, which read it.
type wakes struct {
	*worker.Waker
	// images is when images came last, objects when objects that pods refer to, or their
	// volumes, changed last. Workers compare them with what they were before.
	images, objects moment
	// pods is filled when the runtime's state of a pod has changed, volumes for what they are made from.
	pods    wake.Slot
	volumes *wake.Keyed[pod.Object]
}

func newWakes() *wakes {
	return &wakes{Waker: worker.NewWaker(), pods: wake.NewSlot(), volumes: wake.NewKeyed[pod.Object]()}
}

// podChanged has all look again that follow what the runtime has of pods.
func (w *wakes) podChanged(uid types.UID) {
	w.Wake(uid)
	w.pods.Wake()
}

// wakeOnPods returns what calls these whenever the runtime's state of pods has changed, until its context ends.
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

// imagesArrived has the pods that wait for an image look again.
func (w *wakes) imagesArrived() {
	w.images.now()
	w.WakeAll()
}

// objectsChanged has the pods look again that wait for one of these, and volumes that are made from one; the zero
// object is any.
func (w *wakes) objectsChanged(changed ...pod.Object) {
	if len(changed) > 0 {
		w.objects.now()
		w.WakeAwaiting(changed...)
		w.volumes.Wake(changed...)
	}
}

// claimsFreed has the pods look again that wait for a claim.
func (w *wakes) claimsFreed() {
	w.objectsChanged(pod.Object{Kind: string(object.PersistentVolumeClaim)})
}

// specChanged has volumes written again that show what changes of a pod.
func (w *wakes) specChanged(p *v1.Pod) {
	w.volumes.Wake(pod.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name})
}

// admissible yields the pods that should run, as far as they may begin.
func (w *wakes) admissible(yield func(allocation.Pod) bool) {
	w.Pods(func(p *v1.Pod, stopping bool) bool { return yield(allocation.Pod{Pod: p, Ending: stopping}) })
}

// followFacts returns what has all look again that go by facts about the node, whenever one changes, until its context
// ends.
func followFacts(facts *nodefacts.Board, allocations *allocation.Manager, w *wakes) func(context.Context) error {
	return func(ctx context.Context) error {
		changed, stop := facts.Watch(
			nodefacts.HostIPs | nodefacts.Labels | nodefacts.Allocatable | nodefacts.AwaitedPlugins | nodefacts.Advertised | nodefacts.DeclaredFeatures)
		defer stop()
		for {
			now := facts.Now() // with what changed before this began
			allocations.NodeChanged(forPods(now))
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			w.claimsFreed()                  // volumes can be used on nodes with certain labels
			w.volumes.Wake(volumestate.Node) // some say what is allocatable
			w.WakeAll()                      // statuses have the addresses
		}
	}
}

// forPods are the resources that there are for pods, and those whose device plugin has yet to register. What only the
// node's object has was written there by an administrator; at the agent's start all of it was made 0, for which a
// plugin or a person has to give another number.
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

// followDevices returns what takes in how many devices there are, whenever that changes, until its context ends.
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

// moment is when something happened last. It moves strictly forward, though the clock may
// be set back: whoever waits for it compares it with what it was before. Safe for concurrent use.
type moment struct{ nanoseconds atomic.Int64 }

// now says that it happened.
func (m *moment) now() {
	for {
		before := m.nanoseconds.Load()
		if m.nanoseconds.CompareAndSwap(before, max(before+1, time.Now().UnixNano())) {
			return
		}
	}
}

func (m *moment) time() time.Time { return time.Unix(0, m.nanoseconds.Load()) }

// follower has those look again that depend on what manifests say, beside the workers.
type follower struct {
	merger    *desired.Merger
	additions *desired.Additions
	claims    *binder.Binder
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
			// The end of pods that used a claim has the binder look for itself.
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
			// What an earlier agent recorded about pods that nobody wants any more.
			f.journal.Sweep(func(uid types.UID) bool { return set.Has(uid) })
			f.collector.Wake() // before, it couldn't know which images are wanted
		}
		last = set
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
