package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Desired is the set of pods that should run.
type Desired interface {
	Current() *desired.Set
	// Subscribe returns a channel that receives after Current may have changed. stop ends that.
	Subscribe() (changed <-chan struct{}, stop func())
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

// Executor carries out actions. Its methods are called from many goroutines.
type Executor interface {
	// Do blocks until the action has ended, or ctx has. Whatever it changed in the
	// runtime is visible in Observed before it returns. d is nil for a pod that no source has.
	Do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID, a pod.Action) pod.Result
	// Checkpoint reads the checkpoint of the pod that an earlier agent saved; nil if there is none.
	Checkpoint(types.UID) *pod.Checkpoint
	// LoggedAttempts returns, by container, the least attempt a new instance may have by the logs on disk.
	LoggedAttempts(p *v1.Pod) map[string]int
	// Leftovers lists the pods that still have directories or cgroups on this node.
	Leftovers() ([]types.UID, error)
}

// Probes runs probes. Its methods don't block.
type Probes interface {
	// Want replaces the set of probes that run for a pod, given as it is now.
	Want(uid types.UID, p *v1.Pod, o *pod.Observed, podIP string, probes []pod.Probe)
	// Results returns the results of the pod's probes.
	Results(types.UID) []pod.ProbeResult
	Forget(types.UID)
}

// Allocations knows what resources were allocated to pods.
type Allocations interface {
	// Get returns the pod's allocation; nil before AdmitPod.
	Get(types.UID) *pod.Allocation
	// Health returns the health of assigned resources, by container; the pod's Wake is called after it changes.
	Health(types.UID) map[string][]v1.ResourceStatus
}

// Journal records decisions.
type Journal interface {
	// Open begins, or goes on with, the record of a pod.
	Open(uid types.UID, name string) Record
	// Close says that nothing is left of the pod.
	Close(types.UID)
}

// Record is one pod's part of the journal. Its worker is the only one to call it.
type Record interface {
	Decision(in lifecycle.Input, d lifecycle.Decision)
	// Failed records what the core failed on, and returns where a person finds it.
	Failed(in lifecycle.Input, err error) string
}

// Statuses takes the reports of workers. There is one writer per pod: its worker.
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
	// Added is called when a pod that a source has gets its worker, with the number of its main containers and the time
	// since it was first seen.
	Added(containers int, sinceSeen time.Duration)
	// Running is called when a pod's containers first all run, with the time since it was first seen, and how much of
	// that was for pulls and init containers.
	Running(sinceSeen, other time.Duration)
	// ContainerEnded is called when an instance of a pod.ContainerType is seen to have ended.
	ContainerEnded(containerType string, exitCode int32, reason string)
	// Orphaned is called for each pod that only the runtime knows of.
	Orphaned()
}

// PodTerminator finds that pods have to end though a source has them (eviction, preemption). It stops nothing itself.
// Its functions don't block.
type PodTerminator struct {
	// Termination returns why a pod has to end; nil if it may run. The pod's Wake is called after that changes.
	Termination func(types.UID) *pod.PodTermination
	// Forget is called for each pod that nothing is left of: its termination must not hold for another one of its UID.
	// It is nil if it isn't needed.
	Forget func(types.UID)
}

// Config is what a Pool is built from. Every field is required unless it says otherwise.
type Config struct {
	Desired  Desired
	Observed Observed
	Executor Executor
	Probes   Probes
	// Allocations knows what resources pods have, Journal records the decisions.
	Allocations Allocations
	Journal     Journal
	Statuses    Statuses
	Recorder    Recorder
	Meter       Meter
	// Node is called at each decision for the facts of the node that the core needs.
	Node func() lifecycle.Node
	// ExcessContainers returns which of a pod's ended instances are to be removed; nil for none.
	ExcessContainers func(types.UID) []string
	// Terminators find that pods have to end though a source has them. The first termination of a pod is completed,
	// also by a later agent; another may shorten its grace. Of two at the same time the first one here counts.
	Terminators []PodTerminator
	// ReportsHealth adds the health of assigned resources to statuses (KEP-4680).
	ReportsHealth bool
	// KeepUnknownPods leaves pods running that no source has had since the agent started,
	// unless one has another pod of that name: they may be an API server's, to which the agent
	// doesn't connect.
	KeepUnknownPods bool
	// Resync is how often every worker looks again without being woken, as a safety net.
	Resync time.Duration
	Log    logr.Logger
}

// Pool owns the workers.
type Pool struct {
	*Waker
	cfg Config

	// ended gets each worker that has nothing left to do.
	ended chan *worker
	// heartbeat is the time of the last turn of the loop, for Healthy.
	heartbeat time.Time
	wg        sync.WaitGroup

	// waiting has the names of wanted pods that can't begin before another one has
	// ended. The loop alone touches it.
	waiting map[string]bool
	// returning has the attempts that containers of a pod go on with that was wanted again while it was being stopped:
	// its restart counts don't fall. The loop alone touches it.
	returning map[types.UID]map[string]int
	// unknown are the pods that were logged as left running.
	unknown map[types.UID]bool
	// turned wakes whoever follows which workers there are.
	turned wake.Group
	// core is lifecycle.Decide; a test makes it fail.
	core func(lifecycle.Input) lifecycle.Decision
}

// New constructs a pool whose workers w wakes; Run starts it.
func New(w *Waker, cfg Config) *Pool {
	return &Pool{Waker: w, cfg: cfg, returning: map[types.UID]map[string]int{}, unknown: map[types.UID]bool{},
		ended: make(chan *worker), core: lifecycle.Decide}
}

// termination combines the terminations of the pod; nil if it may run.
func (p *Pool) termination(uid types.UID) *pod.PodTermination {
	list := make([]*pod.PodTermination, 0, 8) // on the stack: this is a part of every step
	for _, t := range p.cfg.Terminators {
		list = append(list, t.Termination(uid))
	}
	return lifecycle.Combine(list...)
}

// Count returns how many workers there are.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// left reports whether there is a worker of a pod of this name, or anything of one in the runtime.
func (p *Pool) left(fullName string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if w.name == fullName {
			return true
		}
	}
	return p.observes(func(o *pod.Observed) bool { return o.Namespace+"/"+o.Name == fullName })
}

// anyLeft reports whether there is any worker, or anything of a pod in the runtime that isn't left alone.
func (p *Pool) anyLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers) > 0 || p.observes(func(o *pod.Observed) bool { return !p.unknown[o.UID] })
}

// observes reports whether the runtime has anything of such a pod.
func (p *Pool) observes(such func(*pod.Observed) bool) bool {
	return slices.ContainsFunc(p.cfg.Observed.UIDs(), func(uid types.UID) bool {
		o := p.cfg.Observed.Get(uid)
		return !o.Empty() && such(o)
	})
}

// leastStall is how long the loop may stall however often it resyncs: a host may be busy.
const leastStall = 10 * time.Second

// Healthy returns an error when the loop that starts and ends workers has stalled for two
// of its resync periods. One that hasn't begun yet is healthy: a restart of the agent doesn't fix
// a missing runtime.
func (p *Pool) Healthy(now time.Time) error {
	last, most := p.Heartbeat(), max(2*p.cfg.Resync, leastStall)
	if stall := now.Sub(last); !last.IsZero() && stall > most {
		return fmt.Errorf("no progress for %s, more than %s", stall.Round(time.Second), most)
	}
	return nil
}

// Heartbeat returns when the loop last looked at what is wanted, and has acted on that; zero before it began. It does
// at least every Resync.
func (p *Pool) Heartbeat() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heartbeat
}

// Run starts and ends workers as the desired set asks for, until ctx ends. It
// returns when every worker and action has.
func (p *Pool) Run(ctx context.Context) error {
	defer p.wg.Wait()
	// Until the runtime's state is known, starting a pod might start it twice.
	select {
	case <-p.cfg.Observed.Synced():
	case <-ctx.Done():
		return nil
	}
	changed, stop := p.cfg.Desired.Subscribe()
	defer stop()
	leftovers, listed := p.leftovers()
	tick := time.NewTicker(p.cfg.Resync)
	defer tick.Stop()
	for {
		if !listed {
			leftovers, listed = p.leftovers()
		}
		leftovers = p.reconcile(ctx, leftovers)
		p.turned.Wake()
		if !p.await(ctx, changed, tick.C) {
			return nil
		}
	}
}

// leftovers lists what earlier pods left on disk, and reports whether that is known.
func (p *Pool) leftovers() ([]types.UID, bool) {
	list, err := p.cfg.Executor.Leftovers()
	if err != nil {
		p.cfg.Log.Error(err, "Can't list what earlier pods left on disk; it stays until that can be done")
	}
	return list, err == nil
}

// await waits until there may be something to reconcile; false means that ctx ended.
func (p *Pool) await(ctx context.Context, changed <-chan struct{}, tick <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
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
// another: looking at every pod each time would make removing many of them slow.
func (p *Pool) remove(w *worker) bool {
	p.mu.Lock()
	delete(p.workers, w.uid)
	p.mu.Unlock()
	p.setAwaiting(w, nil)
	if attempts := w.leaves(); attempts != nil {
		p.returning[w.uid] = attempts
	}
	p.cfg.Statuses.Forget(w.uid)
	p.cfg.Probes.Forget(w.uid)
	p.cfg.Journal.Close(w.uid)
	for _, t := range p.cfg.Terminators {
		if t.Forget != nil {
			t.Forget(w.uid)
		}
	}
	p.turned.Wake()
	// A late wake-up may have gone to the worker that had ended already.
	return p.waiting[w.name] || !p.cfg.Observed.Get(w.uid).Empty()
}

// reconcile makes the workers fit the desired set. It returns the leftovers that
// it couldn't decide on yet.
func (p *Pool) reconcile(ctx context.Context, leftovers []types.UID) []types.UID {
	looked := time.Now()
	current := p.cfg.Desired.Current()
	pods := current.Pods
	wanted := make(map[types.UID]*pod.Desired, len(pods))
	for _, d := range pods {
		wanted[d.Pod.UID] = d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.heartbeat = looked }()
	held := p.holders(wanted)
	switch all := current.Synced || current.AllStopped; {
	case all:
		p.stopUnwanted(ctx, wanted, current, leftovers, all)
		leftovers = nil
	case current.LocalSynced:
		p.stopUnwanted(ctx, wanted, current, nil, all)
	}
	maps.DeleteFunc(p.returning, func(uid types.UID, _ map[string]int) bool { return wanted[uid] == nil })
	p.waiting = map[string]bool{}
	for _, d := range pods {
		if w := p.workers[d.Pod.UID]; w != nil {
			if !w.setDesired(d) {
				p.waiting[w.name] = true
			}
			continue
		}
		// A static pod's successor has its name and another UID: it waits until
		// the old one is gone, so that two of them never run at once. One that runs
		// already, beside what another agent left, gets its worker at once.
		if holder, ok := held[pod.FullName(d.Pod)]; ok && holder != d.Pod.UID && !p.runs(d.Pod.UID) {
			p.waiting[pod.FullName(d.Pod)] = true
			p.cfg.Log.V(3).Info("Pod is waiting for its predecessor to end", "pod", klog.KObj(d.Pod),
				"predecessorUID", holder)
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
// holds its name; so does a pod that only the runtime knows and no source has.
func (p *Pool) holders(wanted map[types.UID]*pod.Desired) map[string]types.UID {
	held := make(map[string]types.UID, len(p.workers))
	for _, uid := range p.cfg.Observed.UIDs() {
		if wanted[uid] == nil && p.workers[uid] == nil {
			if o := p.cfg.Observed.Get(uid); !o.Empty() {
				held[o.Namespace+"/"+o.Name] = uid
			}
		}
	}
	for uid, w := range p.workers {
		held[w.name] = uid
	}
	return held
}

// Why a pod ends that a person has stopped, alone or with all others.
const (
	whyStopped    = "it was stopped by a person"
	whyAllStopped = "all pods are being stopped"
)

// stopUnwanted stops the pods that no source has any more or that a person has stopped, and starts workers that remove
// the pods that no source and no worker has: orphans in the runtime and on disk. Unless all sources have reported, it
// goes by what the local ones say alone: their pods, and whose names these have now.
func (p *Pool) stopUnwanted(ctx context.Context, wanted map[types.UID]*pod.Desired, current *desired.Set,
	leftovers []types.UID, all bool) {
	successors := make(map[string]*pod.Desired, len(wanted))
	for _, d := range wanted {
		successors[pod.FullName(d.Pod)] = d
	}
	stopped, stoppedNames := make(map[types.UID]*pod.Desired, len(current.Stopped)),
		make(map[string]bool, len(current.Stopped))
	for _, d := range current.Stopped {
		stopped[d.Pod.UID], stoppedNames[pod.FullName(d.Pod)] = d, true
	}
	why := whyStopped
	if current.AllStopped {
		why = whyAllStopped
	}
	for uid, w := range p.workers {
		switch {
		case wanted[uid] != nil:
		case current.AllStopped || stoppedNames[w.name]:
			w.requestStop(why, true)
		case !all && !w.local(): // an API server may still want it
		default:
			next := successors[w.name]
			// one from a manifest takes the name of an object that stays
			w.requestStop(whyReplaced(next), next != nil && !next.RequiresTerminalPhase)
		}
	}
	orphan := func(uid types.UID, name string) {
		d := stopped[uid]
		switch {
		case wanted[uid] != nil || p.workers[uid] != nil:
		case d != nil: // an earlier agent's end cut its stop off, or came before it
			p.begin(ctx, uid, pod.FullName(d.Pod), d, &lifecycle.Stop{At: time.Now(), Why: why})
		case stoppedNames[name]:
			p.begin(ctx, uid, name, nil, &lifecycle.Stop{At: time.Now(), Why: why})
		case !all && (successors[name] == nil || !successors[name].Source.Local()): // whose name no manifest has
		case p.cfg.KeepUnknownPods && successors[name] == nil:
			p.keepUnknown(uid, name)
		default:
			p.begin(ctx, uid, name, nil, &lifecycle.Stop{At: time.Now(), Why: "no source wants it"})
		}
	}
	for _, uid := range p.cfg.Observed.UIDs() {
		if wanted[uid] != nil {
			continue
		}
		if o := p.cfg.Observed.Get(uid); !o.Empty() {
			if all && p.workers[uid] == nil && !p.unknown[uid] {
				p.cfg.Meter.Orphaned()
			}
			orphan(uid, o.Namespace+"/"+o.Name)
		}
	}
	for _, uid := range leftovers {
		if !p.cfg.KeepUnknownPods || stopped[uid] != nil { // nothing says whose the others are
			orphan(uid, "")
		}
	}
}

// keepUnknown logs once that a pod is left running.
func (p *Pool) keepUnknown(uid types.UID, name string) {
	if !p.unknown[uid] {
		p.unknown[uid] = true
		p.cfg.Log.Info("A pod that is in no manifest is left running: it may be an API server's, and this agent "+
			"connects to none", "pod", logging.Ref(name), "podUID", uid)
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

// sinceSeen is how long ago the agent first saw the pod, 0 if nothing says so.
func sinceSeen(p *v1.Pod) time.Duration {
	seen, err := time.Parse(time.RFC3339Nano, p.Annotations[pod.AnnotationConfigSeen])
	if err != nil {
		return 0
	}
	return max(time.Since(seen), 0)
}

func (p *Pool) begin(ctx context.Context, uid types.UID, name string, d *pod.Desired, stop *lifecycle.Stop) {
	w := newWorker(p, uid, name, d, stop)
	if attempts, ok := p.returning[uid]; ok {
		w.countOn(attempts)
		delete(p.returning, uid)
	}
	p.workers[uid] = w
	if d != nil {
		p.cfg.Meter.Added(len(d.Pod.Spec.Containers), sinceSeen(d.Pod))
	}
	p.wg.Go(func() { w.run(ctx) })
}

// FirstBackoff is the first wait before a container that crashed is restarted (KEP-4603); 0 for the default.
func FirstBackoff(cfg *config.Config) time.Duration {
	if cfg.Gates.Enabled(gates.ReduceDefaultCrashLoopBackOffDecay) {
		return time.Second
	}
	return 0
}

// MaxBackoff is the longest of these waits; 0 for the default.
func MaxBackoff(k *v1beta1.KubeletConfiguration) time.Duration {
	if m := k.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		return m.Duration
	}
	return 0
}
