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
	// Subscribe returns a channel that receives a value after Current may have changed. stop ends the subscription.
	Subscribe() (changed <-chan struct{}, stop func())
}

// Observed holds the state of pods as observed in the runtime.
type Observed interface {
	// Synced is closed once the runtime's state has been read completely.
	Synced() <-chan struct{}
	// Get returns the newest snapshot of one pod; nil if the runtime has nothing of it.
	Get(types.UID) *pod.Observed
	// UIDs lists the pods that have anything in the runtime.
	UIDs() []types.UID
}

// Executor carries out actions. Its methods are safe for concurrent use.
type Executor interface {
	// Do blocks until the action has ended or ctx is done. Its changes in the runtime are visible in Observed before
	// it returns. d is nil for a pod without a source.
	Do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID, a pod.Action) pod.Result
	// Checkpoint reads the checkpoint of the pod that an earlier agent saved; nil if there is none.
	Checkpoint(types.UID) *pod.Checkpoint
	// LoggedAttempts returns, by container, the lowest attempt number of a new instance according to the logs on
	// disk.
	LoggedAttempts(p *v1.Pod) map[string]int
	// Leftovers lists the pods that still have a directory or a record on disk.
	Leftovers() ([]types.UID, error)
}

// Probes runs probes. Its methods don't block.
type Probes interface {
	// Want replaces the set of probes that run for a pod. p is the pod's spec, o its observed state and podIP its
	// address.
	Want(uid types.UID, p *v1.Pod, o *pod.Observed, podIP string, probes []pod.Probe)
	// Results returns the current results of the probes that run for the pod.
	Results(types.UID) []pod.ProbeResult
	Forget(types.UID)
}

// Allocations returns the resources allocated to pods.
type Allocations interface {
	// Get returns the pod's allocation; nil before AdmitPod.
	Get(types.UID) *pod.Allocation
	// Health returns the health of the resources assigned to the pod, by container. After a change of the health, the
	// pod is woken with Wake.
	Health(types.UID) map[string][]v1.ResourceStatus
}

// Journal records decisions.
type Journal interface {
	// Open begins or continues the record of a pod.
	Open(uid types.UID, name string) Record
	// Close ends the record of a pod of which nothing is left.
	Close(types.UID)
}

// Record is one pod's part of the journal. Only the pod's worker calls it.
type Record interface {
	Decision(in lifecycle.Input, d lifecycle.Decision)
	// Failed records the input on which the core failed, and returns the path of the record for users.
	Failed(in lifecycle.Input, err error) string
}

// Statuses receives the reports of workers. Each pod has one writer: its worker.
type Statuses interface {
	Publish(types.UID, pod.Report)
	Forget(types.UID)
}

// Recorder records events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter measures the workers.
type Meter interface {
	// Decided is called after each decision of a worker, with the duration of the decision.
	Decided(time.Duration)
	// Added is called when a pod with a source gets its worker, with the number of its main containers and the time
	// since the agent first saw the pod.
	Added(containers int, sinceSeen time.Duration)
	// Running is called when all containers of a pod run for the first time. sinceSeen is the time since the agent
	// first saw the pod; other is the part of that time spent on image pulls and init containers.
	Running(sinceSeen, other time.Duration)
	// ContainerEnded is called when the end of a container instance has been observed. containerType is a
	// pod.ContainerType.
	ContainerEnded(containerType string, exitCode int32, reason string)
	// Restarted is called when a pod gets a new worker after its source defined it again while it was being stopped.
	// static says that the pod comes from a manifest.
	Restarted(static bool)
	// Orphaned is called for each pod that exists only in the runtime.
	Orphaned()
}

// PodTerminator decides that pods have to end although their sources have them (eviction, preemption). It stops
// nothing itself. Its functions don't block.
type PodTerminator struct {
	// Termination returns why a pod has to end; nil if it may run. After a change, the pod is woken with Wake.
	Termination func(types.UID) *pod.PodTermination
	// Forget is called for each pod of which nothing is left, because its termination must not apply to another pod
	// with the same UID. It may be nil.
	Forget func(types.UID)
}

// Config is the configuration of a Pool. Every field is required unless its comment says otherwise.
type Config struct {
	Desired  Desired
	Observed Observed
	Executor Executor
	Probes   Probes
	// Allocations returns the resources of pods, Journal records the decisions.
	Allocations Allocations
	Journal     Journal
	Statuses    Statuses
	Recorder    Recorder
	Meter       Meter
	// Node is called for each decision and returns the node's facts for the core.
	Node func() lifecycle.Node
	// ExcessContainers returns the IDs of a pod's ended instances that have to be removed. The function may be nil.
	ExcessContainers func(types.UID) []string
	// Terminators decide that pods have to end although their sources have them. The first termination of a pod is
	// completed, even by a later agent; another termination may only shorten its grace period. If two terminators end a
	// pod at the same time, the termination of the first one in this list counts.
	Terminators []PodTerminator
	// ReportsHealth adds the health of assigned resources to statuses (KEP-4680).
	ReportsHealth bool
	// KeepUnknownPods leaves pods running that have had no source since the agent started, unless a source has
	// another pod of the same name: they may be pods of an API server to which the agent doesn't connect.
	KeepUnknownPods bool
	// Resync is the interval at which every worker is woken, as a safety net.
	Resync time.Duration
	Log    logr.Logger
}

// Pool owns the workers.
type Pool struct {
	*Waker
	cfg Config

	// ended receives each worker that has no work left.
	ended chan *worker
	// heartbeat is the time of the loop's last iteration, for Healthy.
	heartbeat time.Time
	wg        sync.WaitGroup

	// waiting has the full names of wanted pods that can't start before another pod of that name has ended. Only the
	// loop accesses it.
	waiting map[string]bool
	// returning has the pods that a source defined again while they were being stopped. It maps their UIDs to the
	// attempt numbers, by container, with which the pods continue, so that their restart counts don't fall. Only the
	// loop accesses it.
	returning map[types.UID]map[string]int
	// unknown has the pods without a source that are left running; each is logged when it is added.
	unknown map[types.UID]bool
	// turned wakes subscribers after the set of workers may have changed.
	turned wake.Group
	// core is lifecycle.Decide, except in tests of its failure.
	core func(lifecycle.Input) lifecycle.Decision
}

// New returns a pool. w wakes its workers; Run starts the pool.
func New(w *Waker, cfg Config) *Pool {
	return &Pool{Waker: w, cfg: cfg, returning: map[types.UID]map[string]int{}, unknown: map[types.UID]bool{},
		ended: make(chan *worker), core: lifecycle.Decide}
}

// termination combines the terminations of the pod; nil if it may run.
func (p *Pool) termination(uid types.UID) *pod.PodTermination {
	list := make([]*pod.PodTermination, 0, 8) // of fixed capacity, to stay on the stack: every step calls this
	for _, t := range p.cfg.Terminators {
		list = append(list, t.Termination(uid))
	}
	return lifecycle.Combine(list...)
}

// Count returns the number of workers.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// left reports whether a pod of this name has a worker or anything in the runtime.
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

// anyLeft reports whether there is any worker, or any pod in the runtime other than the unknown pods that are left
// running. Workers that only fail to remove files, because the disk can't be written or a volume's driver is missing,
// don't count: a later agent removes these files.
func (p *Pool) anyLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if !w.onlyFiles.Load() {
			return true
		}
	}
	return p.observes(func(o *pod.Observed) bool { return !p.unknown[o.UID] })
}

// observes reports whether there is a pod in the runtime for which such returns true.
func (p *Pool) observes(such func(*pod.Observed) bool) bool {
	return slices.ContainsFunc(p.cfg.Observed.UIDs(), func(uid types.UID) bool {
		o := p.cfg.Observed.Get(uid)
		return !o.Empty() && such(o)
	})
}

// leastStall is the minimum duration for which the loop has to stall to count as unhealthy, even if Resync is
// shorter: the host may be busy.
const leastStall = 10 * time.Second

// Healthy returns an error if the loop that starts and ends workers has stalled for two resync periods. A loop that
// hasn't begun yet is healthy: restarting the agent doesn't fix a missing runtime.
func (p *Pool) Healthy(now time.Time) error {
	last, most := p.Heartbeat(), max(2*p.cfg.Resync, leastStall)
	if stall := now.Sub(last); !last.IsZero() && stall > most {
		return fmt.Errorf("no progress for %s, more than %s", stall.Round(time.Second), most)
	}
	return nil
}

// Heartbeat returns when the loop last applied the desired set; zero before the first time. The loop applies it at
// least every Resync.
func (p *Pool) Heartbeat() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heartbeat
}

// Run starts and ends workers according to the desired set, until ctx is done. It returns when all workers and
// actions have ended.
func (p *Pool) Run(ctx context.Context) error {
	defer p.wg.Wait()
	// Before the runtime's state is complete, a pod might be started twice.
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

// leftovers lists the pods that have something on disk, and reports whether it could list them.
func (p *Pool) leftovers() ([]types.UID, bool) {
	list, err := p.cfg.Executor.Leftovers()
	if err != nil {
		p.cfg.Log.Error(err, "Failed to list directories of earlier pods; they stay until that succeeds")
	}
	return list, err == nil
}

// await waits until reconciling may be needed; false means that ctx is done.
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

// remove drops a worker that has ended. It reports whether the pods have to be reconciled, because another pod or
// worker depends on the removal. Reconciling all pods after each removal would make the removal of many pods slow.
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
	// A wake-up for the pod may have gone to the worker after its end.
	return p.waiting[w.name] || !p.cfg.Observed.Get(w.uid).Empty()
}

// reconcile starts and stops workers according to the desired set. leftovers are pods on disk. reconcile returns the
// leftovers about which a later call still has to decide.
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
		// A static pod's successor has the same name and another UID: it waits until the old pod is gone, so that the
		// two never run at once. A pod that already runs gets its worker at once, even if another agent's pod with the
		// same name exists.
		if holder, ok := held[pod.FullName(d.Pod)]; ok && holder != d.Pod.UID && !p.runs(d.Pod.UID) {
			p.waiting[pod.FullName(d.Pod)] = true
			p.cfg.Log.V(3).Info("Pod is waiting for its predecessor to end", "pod", klog.KObj(d.Pod),
				"predecessorUID", holder)
			continue
		}
		p.startWorker(ctx, d.Pod.UID, pod.FullName(d.Pod), d, nil)
		held[pod.FullName(d.Pod)] = d.Pod.UID
	}
	return leftovers
}

// runs reports whether the runtime has a live sandbox of the pod.
func (p *Pool) runs(uid types.UID) bool {
	o := p.cfg.Observed.Get(uid)
	return o != nil && slices.ContainsFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.State == pod.SandboxReady })
}

// holders maps full names to the UIDs that have them on this node now. Pods with a worker hold their names, and so do
// pods that are only in the runtime.
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

// Reasons for stopping pods: a command, or a pod's restart after an eviction, stops single pods or all of them.
const (
	whyStopped    = "a command or its restart after an eviction stops it"
	whyAllStopped = "all pods are being stopped"
)

// stopUnwanted stops pods that have no source any more or were stopped by a user. It starts workers that remove pods
// without source and worker: orphans in the runtime and on disk. If all is false, an API server hasn't reported its
// pods yet: then stopUnwanted removes only pods of local sources, and pods with names that local sources use now.
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
		case !all && !w.local(): // the API server may still have it
		default:
			next := successors[w.name]
			// stays: a pod from a manifest takes over the name of a pod whose object still exists
			w.requestStop(whyReplaced(next), next != nil && !next.RequiresTerminalPhase)
		}
	}
	orphan := func(uid types.UID, name string) {
		d := stopped[uid]
		switch {
		case wanted[uid] != nil || p.workers[uid] != nil:
		case d != nil: // an earlier agent ended before or during the stop
			p.startWorker(ctx, uid, pod.FullName(d.Pod), d, &lifecycle.Stop{At: time.Now(), Why: why})
		case stoppedNames[name]:
			p.startWorker(ctx, uid, name, nil, &lifecycle.Stop{At: time.Now(), Why: why})
		case !all && (successors[name] == nil || !successors[name].Source.Local()): // no manifest has its name
		case p.cfg.KeepUnknownPods && successors[name] == nil:
			p.keepUnknown(uid, name)
		default:
			p.startWorker(ctx, uid, name, nil, &lifecycle.Stop{At: time.Now(), Why: "no source wants it"})
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
		if !p.cfg.KeepUnknownPods || stopped[uid] != nil { // other leftovers may be pods of an API server
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

// whyReplaced returns why a pod is removed; d is its successor, nil if there is none.
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

// sinceSeen is the time since the agent first saw the pod; 0 if unknown.
func sinceSeen(p *v1.Pod) time.Duration {
	seen, err := time.Parse(time.RFC3339Nano, p.Annotations[pod.AnnotationConfigSeen])
	if err != nil {
		return 0
	}
	return max(time.Since(seen), 0)
}

func (p *Pool) startWorker(ctx context.Context, uid types.UID, name string, d *pod.Desired, stop *lifecycle.Stop) {
	w := newWorker(p, uid, name, d, stop)
	if attempts, ok := p.returning[uid]; ok {
		if d != nil {
			p.cfg.Meter.Restarted(d.Source.Local())
		}
		w.countOn(attempts)
		delete(p.returning, uid)
	}
	p.workers[uid] = w
	if d != nil {
		p.cfg.Meter.Added(len(d.Pod.Spec.Containers), sinceSeen(d.Pod))
	}
	p.wg.Go(func() { w.run(ctx) })
}

// FirstBackoff is the first delay before a crashed container is restarted (KEP-4603); 0 for the default.
func FirstBackoff(cfg *config.Config) time.Duration {
	if cfg.Gates.Enabled(gates.ReduceDefaultCrashLoopBackOffDecay) {
		return time.Second
	}
	return 0
}

// MaxBackoff caps the delay before a crashed container is restarted; 0 for the default.
func MaxBackoff(k *v1beta1.KubeletConfiguration) time.Duration {
	if m := k.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		return m.Duration
	}
	return 0
}
