// Package worker runs one goroutine per pod. A worker is woken without data,
// reads what is wanted and what is observed, asks the core (package lifecycle)
// and carries out what it answers. It waits for nothing but wake-ups: effects
// run beside it, so a slow pull never keeps a pod from being stopped, and a slow
// pod delays no other.
package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Desired is the set of pods that should run.
type Desired interface {
	// Current returns the wanted pods and whether every source has reported:
	// before that, a pod that is missing may only be unknown yet.
	Current() (pods []*pod.Desired, synced bool)
	// Changed gets a value, without data, after Current may have changed.
	Changed() <-chan struct{}
}

// Observed is what the runtime has.
type Observed interface {
	// Synced is closed once the runtime's state is known as a whole.
	Synced() <-chan struct{}
	// Get returns the newest snapshot of one pod; nil if the runtime has nothing of it.
	Get(types.UID) *pod.Observed
	// UIDs lists every pod the runtime has something of.
	UIDs() []types.UID
}

// Effects carries out actions. Its methods are called from many goroutines.
type Effects interface {
	// Do blocks until the action has ended, or ctx has. Whatever it changed in the
	// runtime is visible in Observed before it returns. p is nil for a pod nobody wants.
	Do(ctx context.Context, p *v1.Pod, o *pod.Observed, uid types.UID, a pod.Action) pod.Result
	// Kept reads what an earlier agent kept of the pod; nil if nothing.
	Kept(p *v1.Pod) *pod.Kept
	// LoggedAttempts tells, by container, the least attempt a new instance may have by the logs on disk.
	LoggedAttempts(p *v1.Pod) map[string]int
	// Leftovers lists the pods that still have folders or cgroups on this node.
	Leftovers() ([]types.UID, error)
}

// Probes runs probes. Its methods don't block.
type Probes interface {
	// Want replaces the set of probes that run for a pod, which it is told as it is now.
	Want(uid types.UID, p *v1.Pod, o *pod.Observed, podIP string, probes []pod.Probe)
	// Results returns what the pod's probes have come to.
	Results(types.UID) []pod.ProbeResult
	Forget(types.UID)
}

// Allocations knows what resources were granted to pods.
type Allocations interface {
	// Get returns what the pod was granted; nil before PreparePod.
	Get(types.UID) *pod.Allocation
}

// Journal takes down decisions.
type Journal interface {
	// Open begins, or goes on with, the record of a pod.
	Open(uid types.UID, name string) Record
	// Close says that nothing is left of the pod.
	Close(types.UID)
}

// Record is one pod's part of the journal. Its worker is the only one to call it.
type Record interface {
	Decision(in lifecycle.Input, d lifecycle.Decision)
	// Failed takes down what the core failed on, and returns where a person finds it.
	Failed(in lifecycle.Input, err error) string
}

// Statuses takes in what workers tell. There is one writer per pod: its worker.
type Statuses interface {
	Publish(types.UID, pod.Report)
	Forget(types.UID)
}

// Recorder takes in events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter measures the workers.
type Meter interface {
	// Decided is called after each decision of a worker with the time it took.
	Decided(time.Duration)
	// Running is called when a pod's containers first all run, with the time since it was first seen.
	Running(sinceSeen time.Duration)
}

// Config is what a Pool is built from. Every field is needed that doesn't say otherwise.
type Config struct {
	Desired  Desired
	Observed Observed
	Effects  Effects
	Probes   Probes
	// Allocations tells what resources pods have, Journal takes down why.
	Allocations Allocations
	Journal     Journal
	Statuses    Statuses
	Recorder    Recorder
	Meter       Meter
	// Node is asked at each decision for what the core has to know of the node.
	Node func() lifecycle.Node
	// Surplus tells which of a pod's ended instances the node keeps no longer; nil for none.
	Surplus func(types.UID) []string
	// Ending tells the verdict that a pod has to end though it is wanted, which the pod's Wake
	// was called after; nil for none, or for nobody who comes to verdicts. The first one is
	// carried out to its end, also by a later agent; another may shorten its grace.
	Ending func(types.UID) *pod.Ending
	// Gone is told of each pod that nothing is left of: what was known of it mustn't hold for
	// another one of its UID. It doesn't block; nil if nobody wants to know.
	Gone func(types.UID)
	// SparesOthers leaves pods alone that no source has wanted since the agent started,
	// unless one wants another pod of that name: they may be an API server's, which isn't
	// asked.
	SparesOthers bool
	// Resync is how often every worker looks again without being woken, as a safety net.
	Resync time.Duration
	Log    logr.Logger
}

// Pool owns the workers.
type Pool struct {
	cfg Config

	mu      sync.Mutex
	workers map[types.UID]*worker

	// look gets a value when a pod without a worker was seen, or one whose worker
	// can't do what is wanted.
	look chan struct{}
	// ended gets each worker that has nothing left to do.
	ended chan *worker
	// beat is the time of the last turn of the loop, for Healthy.
	beat time.Time
	wg   sync.WaitGroup

	// waiting has the names of wanted pods that can't begin before another one has
	// ended. The loop alone touches it.
	waiting map[string]bool
	// spared are the pods that were told to be left alone.
	spared map[types.UID]bool
	// core is lifecycle.Decide; a test makes it fail.
	core func(lifecycle.Input) lifecycle.Decision
}

// New constructs a pool; Run starts it.
func New(cfg Config) *Pool {
	return &Pool{cfg: cfg, workers: map[types.UID]*worker{}, spared: map[types.UID]bool{}, look: make(chan struct{}, 1), ended: make(chan *worker), core: lifecycle.Decide}
}

// Wake has the pod looked at again. It never blocks and may be called from anywhere.
func (p *Pool) Wake(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.poke()
		return
	}
	p.lookAgain()
}

// lookAgain has the loop compare what is wanted with the workers there are. It never blocks.
func (p *Pool) lookAgain() {
	select {
	case p.look <- struct{}{}:
	default:
	}
}

// Count returns how many workers there are.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// Beat returns when the loop last turned; zero before it began. It turns at
// least every Resync.
func (p *Pool) Beat() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.beat
}

// Run starts and ends workers as the desired set asks for, until ctx ends. It
// returns when every worker and effect has.
func (p *Pool) Run(ctx context.Context) error {
	defer p.wg.Wait()
	// Until the runtime's state is known, starting a pod might start it twice.
	select {
	case <-p.cfg.Observed.Synced():
	case <-ctx.Done():
		return nil
	}
	leftovers, listed := p.leftovers()
	tick := time.NewTicker(p.cfg.Resync)
	defer tick.Stop()
	for {
		if !listed {
			leftovers, listed = p.leftovers()
		}
		leftovers = p.reconcile(ctx, leftovers)
		if !p.await(ctx, tick.C) {
			return nil
		}
	}
}

// leftovers lists what earlier pods left on disk, and reports whether that is known.
func (p *Pool) leftovers() ([]types.UID, bool) {
	list, err := p.cfg.Effects.Leftovers()
	if err != nil {
		p.cfg.Log.Error(err, "Can't list what earlier pods left on disk; it stays until that can be done")
	}
	return list, err == nil
}

// await waits until there may be something to reconcile; false means that ctx ended.
func (p *Pool) await(ctx context.Context, tick <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.cfg.Desired.Changed():
			return true
		case <-p.look:
			return true
		case w := <-p.ended:
			if p.remove(w) {
				return true
			}
		case <-tick:
			p.WakeAll()
			return true
		}
	}
}

// remove drops a worker that has ended. It reports whether that calls for
// another: looking at every pod each time would make taking down many of them slow.
func (p *Pool) remove(w *worker) bool {
	p.mu.Lock()
	delete(p.workers, w.uid)
	p.mu.Unlock()
	p.cfg.Statuses.Forget(w.uid)
	p.cfg.Probes.Forget(w.uid)
	p.cfg.Journal.Close(w.uid)
	if p.cfg.Gone != nil {
		p.cfg.Gone(w.uid)
	}
	// A late wake-up may have gone to the worker that had ended already.
	return p.waiting[w.name] || !p.cfg.Observed.Get(w.uid).Empty()
}

// WakeAll has every pod looked at again; see Wake.
func (p *Pool) WakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.poke()
	}
}

// WakeAwaiting has those pods looked at again that wait for an object (pod.Failure.Awaits):
// to be called after Config.Node tells that objects changed. It never blocks.
func (p *Pool) WakeAwaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.awaits.Load() {
			w.poke()
		}
	}
}

// reconcile makes the workers fit the desired set. It returns the leftovers that
// it could not judge yet.
func (p *Pool) reconcile(ctx context.Context, leftovers []types.UID) []types.UID {
	pods, synced := p.cfg.Desired.Current()
	wanted := make(map[types.UID]*pod.Desired, len(pods))
	for _, d := range pods {
		wanted[d.Pod.UID] = d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat = time.Now()
	held := p.holders(wanted)
	if synced {
		p.stopUnwanted(ctx, wanted, leftovers)
		leftovers = nil
	}
	p.waiting = map[string]bool{}
	for _, d := range pods {
		if w := p.workers[d.Pod.UID]; w != nil {
			if !w.want(d) {
				p.waiting[w.name] = true
			}
			continue
		}
		// A static pod's successor has its name and another UID: it waits until
		// the old one is gone, so that two of them never run at once. One that runs
		// already, found beside another agent's remains, is looked after at once.
		if holder, ok := held[pod.FullName(d.Pod)]; ok && holder != d.Pod.UID && !p.runs(d.Pod.UID) {
			p.waiting[pod.FullName(d.Pod)] = true
			p.cfg.Log.V(3).Info("Pod waits for its predecessor to end", "pod", pod.FullName(d.Pod), "predecessor", holder)
			continue
		}
		p.begin(ctx, d.Pod.UID, pod.FullName(d.Pod), d, nil)
		held[pod.FullName(d.Pod)] = d.Pod.UID
	}
	return leftovers
}

// runs reports whether the runtime has a live sandbox of the pod.
func (p *Pool) runs(uid types.UID) bool {
	o := p.cfg.Observed.Get(uid)
	return o != nil && slices.ContainsFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.State == pod.SandboxReady })
}

// holders maps full names to the UID that has them on this node now. A worker
// holds its name; so does a pod that only the runtime knows and nobody wants.
func (p *Pool) holders(wanted map[types.UID]*pod.Desired) map[string]types.UID {
	held := make(map[string]types.UID, len(p.workers))
	for _, uid := range p.cfg.Observed.UIDs() {
		if wanted[uid] == nil && p.workers[uid] == nil {
			if o := p.cfg.Observed.Get(uid); !o.Empty() {
				held[o.Name+"_"+o.Namespace] = uid
			}
		}
	}
	for uid, w := range p.workers {
		held[w.name] = uid
	}
	return held
}

// stopUnwanted ends the workers of pods that are no longer wanted, and takes
// down what nobody wants and no worker has: orphans in the runtime and on disk.
func (p *Pool) stopUnwanted(ctx context.Context, wanted map[types.UID]*pod.Desired, leftovers []types.UID) {
	successors := make(map[string]*pod.Desired, len(wanted))
	for _, d := range wanted {
		successors[pod.FullName(d.Pod)] = d
	}
	for uid, w := range p.workers {
		if wanted[uid] == nil {
			w.end(whyReplaced(successors[w.name]))
		}
	}
	orphan := func(uid types.UID, name string) {
		switch {
		case wanted[uid] != nil || p.workers[uid] != nil:
		case p.cfg.SparesOthers && successors[name] == nil:
			p.spare(uid, name)
		default:
			p.begin(ctx, uid, name, nil, &lifecycle.Stop{At: time.Now(), Why: "no source wants it"})
		}
	}
	for _, uid := range p.cfg.Observed.UIDs() {
		if wanted[uid] != nil {
			continue
		}
		if o := p.cfg.Observed.Get(uid); !o.Empty() {
			orphan(uid, o.Name+"_"+o.Namespace)
		}
	}
	for _, uid := range leftovers {
		if !p.cfg.SparesOthers { // whose they are can't be told
			orphan(uid, "")
		}
	}
}

// spare tells once of a pod that is left alone.
func (p *Pool) spare(uid types.UID, name string) {
	if !p.spared[uid] {
		p.spared[uid] = true
		p.cfg.Log.Info("A pod that no manifest wants is left alone: an API server may want it, and this build asks none", "pod", name, "podUID", uid)
	}
}

// whyReplaced says why a pod has to go; d is its successor, nil if it has none.
func whyReplaced(d *pod.Desired) string {
	switch {
	case d == nil:
		return "its manifest is gone"
	case d.Replaces == "":
		return "its manifest has changed"
	default:
		return "its manifest has changed: " + d.Replaces
	}
}

func (p *Pool) begin(ctx context.Context, uid types.UID, name string, d *pod.Desired, stop *lifecycle.Stop) {
	w := newWorker(p, uid, name, d, stop)
	p.workers[uid] = w
	p.wg.Go(func() { w.run(ctx) })
}
