package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// worker manages one pod. Only its goroutine accesses mem and the fields below it.
type worker struct {
	pool *Pool
	uid  types.UID
	name string
	// signal wakes the worker; wake-ups merge.
	signal wake.Slot
	wg     sync.WaitGroup

	mu      sync.Mutex
	desired *pod.Desired
	stop    *lifecycle.Stop
	// over says that the pod was reported as ended: it will release its resources soon.
	over bool
	// returned says that a source defined the pod again while it was being stopped.
	returned bool
	results  []pod.Result

	mem      lifecycle.Memory
	flights  []flight
	reported pod.Report
	wasUp    bool
	// ended has, by container, the ID of the last instance that was counted as ended; nil before the first report.
	ended map[string]string
	// pulls are the time spans in which the pod waited for images.
	pulls spans
	// probed is the last set of probes that was requested.
	probed probed
	// record records every decision.
	record Record
	// awaits are the objects that the pod waits for; see Waker.setAwaiting.
	awaits []pod.Object
	// panicked is the time of the core's last panic, which is a bug; see decidePanicked.
	panicked time.Time
	// onlyFiles says that nothing is left of the pod but files that a later agent has to remove.
	onlyFiles atomic.Bool
}

// probed holds the probes of a pod and the state that they depend on.
type probed struct {
	pod    *v1.Pod
	ip     string
	probes []pod.Probe
}

// leftToOthers reports whether a pod with this wait has only files left, which a later agent has to remove: their disk
// can't be written, or the driver of a volume doesn't register. If all pods are stopped at once, the driver may be one
// of them.
func leftToOthers(x pod.Wait) bool {
	return x.Code == pod.WaitRetry && x.Action == pod.CleanPod &&
		(x.Disk || x.Object.Kind == pod.CSIDriver && x.Attempts > 1)
}

// flight is an action under way.
type flight struct {
	action pod.Action
	ctx    context.Context
	cancel context.CancelFunc
	begun  time.Time
}

func newWorker(p *Pool, uid types.UID, name string, d *pod.Desired, stop *lifecycle.Stop) *worker {
	if d != nil && d.Deletion != nil {
		stop = stopOf(d.Deletion)
	}
	w := &worker{pool: p, uid: uid, name: name, desired: d, stop: stop, signal: wake.NewSlot(),
		record: p.cfg.Journal.Open(uid, name)}
	w.signal.Wake()
	return w
}

// stopOf converts the deletion of a pod's object to a Stop.
func stopOf(d *pod.Deletion) *lifecycle.Stop {
	return &lifecycle.Stop{At: d.At, Grace: &d.Grace, Why: "it was deleted"}
}

// setDesired sets the newest version of the worker's pod. It returns false if the worker has to stop its pod first: the
// pod is already being stopped (other than by the deletion of its object), or d is another pod or a restart of this
// pod. The pool starts d after that. A deletion may get a shorter grace period.
func (w *worker) setDesired(d *pod.Desired) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.desired
	if w.stop != nil && (old == nil || old.Deletion == nil || d.Deletion == nil) {
		w.returned = old != nil && old.Base == d.Base
		return false
	}
	if old == d {
		return true
	}
	if old != nil && (old.Base != d.Base || d.Pod.Generation < old.Pod.Generation && !d.UIDIsIdentity) {
		// This isn't an edit in place but another pod with the same UID, because the manifest sets the UID or because
		// another source has the pod now: it gets another worker once this worker's pod is gone.
		w.stop = &lifecycle.Stop{At: time.Now(), Why: whyReplaced(d)}
		w.signal.Wake()
		return false
	}
	if old != nil && !d.UIDIsIdentity &&
		old.Pod.Annotations[pod.AnnotationConfigSeen] != d.Pod.Annotations[pod.AnnotationConfigSeen] {
		// The manifest was removed and came back before the worker stopped the pod: the pod is restarted nevertheless,
		// and its restart counts continue.
		w.stop, w.returned = &lifecycle.Stop{At: time.Now(), Why: "its manifest was removed, and is back"}, true
		w.signal.Wake()
		return false
	}
	if w.desired = d; d.Deletion != nil {
		w.stop = stopOf(d.Deletion)
	}
	w.signal.Wake()
	return true
}

// local reports whether the worker's pod is from a manifest.
func (w *worker) local() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.desired != nil && w.desired.Source.Local()
}

// forcedGrace is the grace period of a pod after its object was removed without waiting for its end (`kubectl delete
// --force`; API concepts, "Forced Pod termination": "a small grace period").
const forcedGrace = 2 * time.Second

// requestStop makes the worker stop and remove its pod. stays says that the source may still have the pod.
func (w *worker) requestStop(why string, stays bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stop, under := lifecycle.Stop{At: time.Now(), Why: why}, w.stop != nil
	if d := w.desired; d != nil && d.RequiresTerminalPhase {
		removed := *d
		removed.RequiresTerminalPhase, removed.Deletion = false, nil
		if w.desired = &removed; !stays {
			grace := forcedGrace
			stop.Grace, stop.Why, under = &grace, "its object is gone", false
		}
	}
	if !under {
		w.stop = &stop
	}
	w.signal.Wake()
}

func (w *worker) run(ctx context.Context) {
	defer w.wg.Wait()
	w.adopt()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-timer.C:
		}
		wake, done := w.turn(ctx)
		if done {
			break
		}
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(wake), 0))
		}
	}
	select {
	case w.pool.ended <- w:
	case <-ctx.Done():
	}
}

// turn makes one step, and returns the time of the next one and whether the pod is done. It is a separate function
// because every idle worker keeps run's stack frame: with a Decision in that frame the stack of a worker stays at 8
// KiB, without it the stack shrinks to 4 KiB.
//
//go:noinline
func (w *worker) turn(ctx context.Context) (wake time.Time, done bool) {
	d := w.step(ctx)
	return d.Wake, d.Done
}

// adopt loads the state that the first decision needs. Like turn, it isn't inlined, to keep run's stack frame small.
//
//go:noinline
func (w *worker) adopt() {
	w.mu.Lock()
	d := w.desired
	w.mu.Unlock()
	if steps := w.pool.cfg.Node().ClockSteps; len(steps) > 0 {
		w.mem.ClockStep = steps[len(steps)-1]
	}
	k := w.pool.cfg.Executor.Checkpoint(w.uid)
	if d == nil {
		w.mem.Checkpoint, w.mem.OnDisk = k, k
		return
	}
	if k != nil && k.Base != "" && k.Base != d.Base {
		// The existing state belongs to another pod with the same UID: the manifest sets the UID, and was edited
		// while no agent ran. The pool starts this worker's pod when that other pod is gone.
		w.mu.Lock()
		w.stop = &lifecycle.Stop{At: time.Now(), Why: whyReplaced(d)}
		w.mu.Unlock()
		w.pool.look.Wake()
	} else {
		w.mem.Checkpoint, w.mem.OnDisk = k, k
	}
	o := w.pool.cfg.Observed.Get(w.uid)
	// An adopted pod started long ago: the duration of its start isn't measured.
	w.wasUp = !o.Empty()
	// Containers without an instance in the runtime continue the attempt numbers of their logs. That holds even if the
	// pod has a sandbox, because the sandbox may be newer than the logs.
	var logged map[string]int
	for name := range pod.ContainerNames(d.Pod) {
		if o.Newest(name) != nil {
			continue
		}
		if logged == nil {
			logged = w.pool.cfg.Executor.LoggedAttempts(d.Pod)
		}
		if n, ok := logged[name]; ok {
			w.countOn(map[string]int{name: n})
		}
	}
}

// countOn raises the attempt numbers of the containers' next instances to those in attempts, if they are lower.
func (w *worker) countOn(attempts map[string]int) {
	if w.mem.Attempts == nil {
		w.mem.Attempts = make(map[string]int, len(attempts))
	}
	for name, n := range attempts {
		w.mem.Attempts[name] = max(w.mem.Attempts[name], n)
	}
}

// leaves returns the attempt numbers with which the pod continues if a source defined it again while it was being
// stopped; nil otherwise. It leaves out ephemeral containers, which run only once in each pod.
func (w *worker) leaves() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.returned {
		return nil
	}
	attempts := maps.Clone(w.mem.Attempts)
	for i := range w.desired.Pod.Spec.EphemeralContainers {
		delete(attempts, w.desired.Pod.Spec.EphemeralContainers[i].Name)
	}
	return attempts
}

// step is one turn: read, decide, act, report.
func (w *worker) step(ctx context.Context) lifecycle.Decision {
	begun := time.Now()
	w.mu.Lock()
	if w.stop == nil && w.desired != nil && rejectedBefore(w.mem.Checkpoint, w.desired) {
		w.stop = &lifecycle.Stop{At: begun, Why: whyReplaced(w.desired)}
		w.pool.look.Wake()
	}
	desired, stop, results := w.desired, w.stop, w.results
	w.results = nil
	w.mu.Unlock()
	w.collectResults(results)
	in := lifecycle.Input{
		Now: begun, Stop: stop, Results: results, Memory: w.mem, Node: w.pool.cfg.Node(),
		// Observed is read after the results, so that it includes the changes of these actions.
		Observed:   w.pool.cfg.Observed.Get(w.uid),
		Probes:     w.pool.cfg.Probes.Results(w.uid),
		Allocation: w.pool.cfg.Allocations.Get(w.uid), Termination: w.pool.termination(w.uid),
	}
	if excess := w.pool.cfg.ExcessContainers; excess != nil {
		in.ExcessContainers = excess(w.uid)
	}
	if desired != nil {
		in.Pod, in.RequiresTerminalPhase = desired.Pod, desired.RequiresTerminalPhase
		if string(w.uid) != desired.Base {
			in.Base = desired.Base
		}
	}
	for i := range w.flights {
		in.InFlight = append(in.InFlight, w.flights[i].action)
	}
	d, err := w.decide(in)
	if err != nil {
		return w.decidePanicked(in, results, err)
	}
	w.mem = d.Memory
	w.await(d.Memory.Retries.Awaiting(), in.Node.ObjectsAt)
	w.record.Decision(in, d)
	w.mu.Lock()
	// over is set before the report: a reader of the reported status may already send the successor of the pod.
	w.over = d.Memory.Status != nil && pod.Terminal(d.Memory.Status.Phase) != ""
	w.mu.Unlock()
	w.report(desired, stop, d)
	onlyFiles := slices.ContainsFunc(d.Waits, leftToOthers)
	if w.onlyFiles.Swap(onlyFiles) != onlyFiles {
		w.pool.turned.Wake()
	}
	w.requestProbes(in, d)
	for _, target := range d.Cancel {
		for i := range w.flights {
			if w.flights[i].action.Target() == target {
				w.flights[i].cancel()
			}
		}
	}
	for _, a := range d.Actions {
		w.launch(ctx, desired, in.Observed, a)
	}
	w.pool.cfg.Meter.Decided(time.Since(begun))
	return d
}

// await sets the objects that the pod waits for after a decision. known is the decision's ObjectsAt: if objects have
// changed since, the worker is woken.
func (w *worker) await(objects []pod.Object, known time.Time) {
	if slices.Equal(objects, w.awaits) {
		return
	}
	w.pool.setAwaiting(w, objects)
	if len(objects) > 0 && w.pool.cfg.Node().ObjectsAt.After(known) {
		w.signal.Wake()
	}
}

// rejectedBefore reports whether the node rejected another version of the pod. A rejected pod can't be edited in
// place: the new version gets another worker once the state of the old one is removed. If all versions are the same
// pod (UIDIsIdentity), it has failed for good.
func rejectedBefore(k *pod.Checkpoint, d *pod.Desired) bool {
	return k != nil && k.Termination != nil && k.Termination.Rejected && k.Termination.Generation != d.Pod.Generation &&
		!d.UIDIsIdentity
}

// decide calls the core. The core is pure, so that a panic has changed nothing; the error contains the stack.
func (w *worker) decide(in lifecycle.Input) (d lifecycle.Decision, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	return w.pool.core(in), nil
}

// afterPanic is the time until the next decision after the core panicked.
const afterPanic = 30 * time.Second

// decidePanicked handles a panic of the core in a decision about one pod, which is a bug. Nothing is done for the pod
// until the next decision, other pods aren't affected, and the core's input is saved for a bug report.
func (w *worker) decidePanicked(in lifecycle.Input, results []pod.Result, err error) lifecycle.Decision {
	w.mu.Lock()
	w.results = append(results[:len(results):len(results)], w.results...)
	w.mu.Unlock()
	if since := time.Since(w.panicked); since >= afterPanic {
		w.panicked = time.Now()
		w.pool.cfg.Log.Error(err,
			"Deciding for this pod failed, which is a bug: the pod is left as it is and retried later; please report "+
				"it with the journal", "pod", logging.Ref(w.name), "podUID", w.uid,
			"journal", w.record.Failed(in, err))
	}
	return lifecycle.Decision{Wake: w.panicked.Add(afterPanic)}
}

// requestProbes requests the probes of a decision if they have changed.
func (w *worker) requestProbes(in lifecycle.Input, d lifecycle.Decision) {
	if in.Pod == nil || len(d.Probes) == 0 && len(w.probed.probes) == 0 {
		return
	}
	next := probed{pod: in.Pod, probes: d.Probes}
	if d.Status != nil {
		next.ip = d.Status.PodIP
	}
	if next.pod == w.probed.pod && next.ip == w.probed.ip && slices.Equal(next.probes, w.probed.probes) {
		return
	}
	w.probed = next
	w.pool.cfg.Probes.Want(w.uid, in.Pod, in.Observed, next.ip, d.Probes)
}

// collectResults removes ended actions from the list of actions under way. A cancelled action counts as cancelled
// even if it failed just before: the core doesn't need its failure any more.
func (w *worker) collectResults(results []pod.Result) {
	for i := range results {
		r := &results[i]
		for i := range w.flights {
			if w.flights[i].action == r.Action {
				if r.Action.Kind == pod.EnsureImage {
					w.pulls.add(w.flights[i].begun, r.At)
				}
				r.Cancelled = r.Failure != nil && w.flights[i].ctx.Err() != nil
				w.flights[i].cancel()
				w.flights = append(w.flights[:i], w.flights[i+1:]...)
				break
			}
		}
	}
}

// launch starts an action on its own goroutine.
func (w *worker) launch(ctx context.Context, d *pod.Desired, o *pod.Observed, a pod.Action) {
	ctx, cancel := context.WithCancel(ctx)
	w.flights = append(w.flights, flight{action: a, ctx: ctx, cancel: cancel, begun: time.Now()})
	w.pool.cfg.Log.V(3).Info("Action", "pod", logging.Ref(w.name), "podUID", w.uid, "action", a.Kind,
		"containerName", a.Container, "id", a.ID, "reason", a.Why)
	w.wg.Go(func() {
		r := w.pool.cfg.Executor.Do(ctx, d, o, w.uid, a)
		r.Action, r.At = a, time.Now()
		w.mu.Lock()
		w.results = append(w.results, r)
		w.mu.Unlock()
		w.signal.Wake()
	})
}

// report publishes the status if it has changed, and logs and records the events.
func (w *worker) report(desired *pod.Desired, stop *lifecycle.Stop, d lifecycle.Decision) {
	for _, e := range d.Events {
		if desired != nil {
			w.pool.cfg.Recorder.Event(desired.Pod, e)
		}
		if e.Type == v1.EventTypeWarning {
			w.pool.cfg.Log.Info("Event occurred", "pod", logging.Ref(w.name), "podUID", w.uid,
				"containerName", e.Container, "type", e.Type, "reason", e.Reason, "message", e.Message)
		} else {
			w.pool.cfg.Log.V(2).Info("Event occurred", "pod", logging.Ref(w.name), "podUID", w.uid,
				"containerName", e.Container, "type", e.Type, "reason", e.Reason, "message", e.Message)
		}
	}
	if desired == nil || d.Status == nil {
		return
	}
	if w.pool.cfg.ReportsHealth {
		d.Status = withHealth(d.Status, w.pool.cfg.Allocations.Health(w.uid))
	}
	w.countEnded(desired.Pod, d.Status)
	r := pod.Report{Desired: desired, Status: d.Status, Waits: d.Waits, Wake: d.Wake, Gone: d.Gone}
	if stop != nil {
		r.Stopping, r.StoppingWhy, r.StoppingAt = true, stop.Why, stop.At
	}
	if last := &w.reported; last.Desired != r.Desired || last.Stopping != r.Stopping ||
		last.StoppingWhy != r.StoppingWhy || last.Gone != r.Gone ||
		!equality.Semantic.DeepEqual(last.Status, r.Status) || !slices.Equal(last.Waits, r.Waits) {
		w.reported = r
		w.pool.cfg.Statuses.Publish(w.uid, r)
	}
	if !w.wasUp && d.Status.Phase == v1.PodRunning {
		w.wasUp = true
		w.pool.cfg.Meter.Running(time.Since(d.Status.StartTime.Time), w.pulls.sum+initTook(d.Status))
	}
}

// withHealth returns a copy of the status with the health of assigned resources.
func withHealth(s *v1.PodStatus, health map[string][]v1.ResourceStatus) *v1.PodStatus {
	if len(health) == 0 {
		return s
	}
	next := *s
	for _, list := range [...]*[]v1.ContainerStatus{&next.InitContainerStatuses, &next.ContainerStatuses} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i].AllocatedResourcesStatus = health[(*list)[i].Name]
		}
	}
	return &next
}

// spans sums up time spans. Overlaps count once if the spans are added in the order of their ends.
type spans struct {
	sum  time.Duration
	last time.Time
}

func (s *spans) add(from, to time.Time) {
	if from.Before(s.last) {
		from = s.last
	}
	if to.After(from) {
		s.sum, s.last = s.sum+to.Sub(from), to
	}
}

// initTook is the total run time of the ended init containers.
func initTook(s *v1.PodStatus) (sum time.Duration) {
	for i := range s.InitContainerStatuses {
		if t := s.InitContainerStatuses[i].State.Terminated; t != nil {
			sum += t.FinishedAt.Sub(t.StartedAt.Time)
		}
	}
	return sum
}

// countEnded counts the instances that ended since the last report, each once. Instances that ended before the agent
// started aren't counted.
func (w *worker) countEnded(p *v1.Pod, s *v1.PodStatus) {
	first := w.ended == nil
	if first {
		w.ended = map[string]string{}
	}
	for _, list := range [...][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			c := &list[i]
			t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
			if t == nil || t.ContainerID == "" || w.ended[c.Name] == t.ContainerID {
				continue
			}
			w.ended[c.Name] = t.ContainerID
			if !first {
				w.pool.cfg.Meter.ContainerEnded(pod.ContainerType(p, c.Name), t.ExitCode, t.Reason)
			}
		}
	}
}
