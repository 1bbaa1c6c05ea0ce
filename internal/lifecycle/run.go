package lifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// run decides for a pod that should be there.
func (d *decider) run() {
	if d.restartAll() || d.endWhole() {
		return
	}
	if !d.admitted() {
		// What is allocated to it is on disk from then on.
		if d.identify() {
			d.admit()
		}
		return
	}
	d.measure()
	up := d.allUp()
	if !d.mem.Prepared {
		// A pod that is found running is prepared again as well: what it has stays,
		// what is missing is made, and the packages that prepare it learn of it.
		d.prepare(up)
		if !up {
			return
		}
	}
	if !d.identify() {
		return
	}
	d.killContainers()
	if up {
		d.addReadinessWaits()
		d.resize()
		d.tidy()
		return
	}
	if !d.ensureSandbox() || !d.clearElsewhere() {
		return
	}
	d.startEphemeral()
	if d.initialize() {
		d.startMains()
	}
	d.addReadinessWaits()
	d.resize()
	d.tidy()
}

// recordOutcome puts the terminal phase of a pod into the checkpoint.
func (d *decider) recordOutcome() {
	if k := d.checkpoint(); d.terminal() != "" || k.RestartAll != nil || k.Termination != nil {
		return
	}
	if phase := d.outcome(); phase != "" {
		if slices.ContainsFunc(d.containers, d.neverBegins) {
			d.plan.TellNeverBegins()
		}
		d.draft.Change(func(k *pod.Checkpoint) { k.Terminal = phase })
	}
}

// outcome is the terminal phase that follows from how the pod's containers ended;
// empty if the pod goes on.
func (d *decider) outcome() v1.PodPhase {
	phase := v1.PodSucceeded
	for i := range d.containers {
		m := &d.containers[i]
		ended := m.Newest != nil && m.Newest.Ended()
		switch m.Role {
		case container.Init:
			if ended && container.ExitCode(m.Newest) != 0 && !d.again(m) && !d.turnOver(i) {
				return v1.PodFailed
			}
			if ended && d.onExit(m) == restart.All {
				return ""
			}
		case container.Main:
			never := d.neverBegins(*m)
			if !never && (!ended || d.again(m)) {
				return ""
			}
			if never || container.ExitCode(m.Newest) != 0 {
				phase = v1.PodFailed
			}
		case container.Sidecar:
			if ended && d.onExit(m) == restart.All {
				return ""
			}
		}
	}
	return phase
}

// neverBegins reports whether a main container wasn't begun and won't be: with restartPolicy Never a pod isn't begun
// again in another sandbox after its sandbox was lost (kubernetes/kubernetes#35309), unless none of its containers had
// begun (#79451).
func (d *decider) neverBegins(m container.Container) bool {
	return d.sandbox == nil && d.in.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && m.Role == container.Main &&
		(m.Newest == nil || m.Newest.State == pod.ContainerCreated) && restart.Never(d.in.Pod, m.Spec) &&
		slices.ContainsFunc(d.containers, func(o container.Container) bool {
			return o.Role != container.Ephemeral && o.Newest != nil && o.Newest.Ended()
		})
}

// onExit returns what follows from the end of a container's newest instance.
func (d *decider) onExit(m *container.Container) restart.Answer {
	_, failed := d.checkpoint().Failed[m.Newest.ID]
	return restart.OnExit(d.in.Pod, m.Spec, m.Role, container.ExitCode(m.Newest), failed)
}

// unexpected reports whether the exit code of a container that is started again says, to those who don't know why it
// had to end, that it has ended for good.
func (d *decider) unexpected(m *container.Container) bool {
	return m.LongRunning() &&
		restart.OnExit(d.in.Pod, m.Spec, m.Role, container.ExitCode(m.Newest), false) == restart.Stay
}

// again reports whether another instance follows the newest, which has ended.
func (d *decider) again(m *container.Container) bool {
	if slices.Contains(d.checkpoint().Renew, m.Newest.ID) {
		return true
	}
	return d.onExit(m) != restart.Stay
}

// allUp is the common case: every container that should run runs in the live
// sandbox, and none is left to be begun.
func (d *decider) allUp() bool {
	if d.sandbox == nil {
		return false
	}
	for i := range d.containers {
		m := &d.containers[i]
		switch m.Role {
		case container.Main, container.Sidecar:
			if !m.Runs() || !m.PostStartDone {
				return false
			}
		case container.Ephemeral:
			if d.mayStart(m) {
				return false
			}
		}
	}
	return true
}

// addReadinessWaits adds a wait for each running container that isn't started or ready.
func (d *decider) addReadinessWaits() {
	for i := range d.containers {
		m := &d.containers[i]
		switch {
		case m.Runs() && m.NotReady != nil && m.PostStartDone:
			d.plan.AddWait(*m.NotReady)
		case m.Role == container.Main && m.Newest != nil && m.Newest.Ended() && !d.again(m):
			d.plan.AddWait(pod.Wait{Code: pod.WaitEnded, Container: m.Spec.Name,
				ExitCode: container.ExitCode(m.Newest)})
		}
	}
	for _, g := range d.in.Pod.Spec.ReadinessGates {
		if status, _ := apistatus.Gate(d.in.Pod, g.ConditionType); status != v1.ConditionTrue {
			d.plan.AddWait(pod.Wait{Code: pod.WaitGate, Gate: string(g.ConditionType)})
		}
	}
}

// identify puts into the checkpoint which pod of its UID this is, where the manifest gives the
// UID, and reports whether that is on disk. Until then nothing is made that might be taken for
// another pod's after a restart of the agent.
func (d *decider) identify() bool {
	if d.checkpoint().Base != d.in.Base {
		d.draft.Change(func(k *pod.Checkpoint) { k.Base = d.in.Base })
	}
	if d.in.Base == "" || d.draft.Disk != nil && d.draft.Disk.Base == d.in.Base {
		return true
	}
	d.plan.AddActionWait("", pod.SaveCheckpoint)
	return false
}

// admitted reports whether the node lets the pod run. A pod of which an earlier agent made
// something, or to which it allocated resources, stays admitted, whatever the node is like by now.
func (d *decider) admitted() bool {
	return d.mem.Admitted || d.mem.Prepared || d.in.Allocation != nil || !d.in.Observed.Empty()
}

// admit has the node decide whether it lets the pod run, before anything is made of it.
func (d *decider) admit() {
	a := pod.Action{Kind: pod.AdmitPod, Why: "the node has to have what it asks for before anything is made"}
	switch r, failed := d.plan.Retrying(a); {
	case !failed:
		d.plan.AddActionWait("", a.Kind)
	case r.Failure.Wait != "":
		d.plan.AddWait(pod.Wait{Code: pod.WaitAdmission, For: r.Failure.Wait, Message: r.Failure.Message, Next: r.At})
	default:
		d.plan.AddRetryWait("", a)
	}
	d.plan.Do(a)
}

func (d *decider) prepare(up bool) {
	a := pod.Action{Kind: pod.PreparePod, PodResources: d.resizing.AtFirst(),
		Why: "directories, cgroup and volumes come before the sandbox"}
	if !d.plan.AddRetryWait("", a) && !up {
		d.plan.AddActionWait("", a.Kind)
	}
	if d.plan.Do(a) {
		d.mem.Overhead = d.in.Pod.Spec.Overhead
	}
}

// ensureSandbox works towards a live sandbox, and reports whether there is one.
func (d *decider) ensureSandbox() bool {
	if d.sandbox != nil {
		return true
	}
	attempt := uint32(0)
	for i := range d.sandboxes() {
		old := &d.sandboxes()[i]
		attempt = max(attempt, old.Attempt+1)
	}
	// Whatever still runs in a dead sandbox ends before its successor starts:
	// never two instances of one container.
	if len(d.sandboxes()) > 0 {
		if !d.terminator.StopAll(d.terminator.Term(d.in.Now, nil, "its sandbox is gone")) {
			d.plan.AddWait(pod.Wait{Code: pod.WaitSandboxGone})
			return false
		}
		for i := range d.sandboxes() {
			if !d.stopSandbox(&d.sandboxes()[i], "the sandbox is not ready") {
				d.plan.AddActionWait("", pod.StopSandbox)
				return false
			}
		}
	}
	d.tidySandboxes()
	if due := d.sandboxDue(); d.in.Now.Before(due) {
		d.plan.WakeAt(due)
		d.plan.AddWait(pod.Wait{Code: pod.WaitSandboxBackOff, Next: due})
		return false
	}
	a := pod.Action{Kind: pod.CreateSandbox, Attempt: int(attempt), Why: "the pod has no live sandbox"}
	if !d.plan.AddRetryWait("", a) {
		d.plan.AddActionWait("", a.Kind)
	}
	if d.plan.Do(a) && attempt > 0 {
		d.plan.Tell(pod.ReasonSandboxChanged)
	}
	return false
}

// shortLived is how soon after its creation the end of a sandbox counts as a failure.
const shortLived = 30 * time.Second

// sandboxDue is when the next sandbox may be created: at once, unless the last one was
// created just before.
func (d *decider) sandboxDue() time.Time {
	list := d.sandboxes()
	if len(list) == 0 {
		return time.Time{}
	}
	last := &list[0]
	if age := d.in.Now.Sub(last.CreatedAt); age < 0 || age >= shortLived {
		return time.Time{}
	}
	return last.CreatedAt.Add(min(time.Second<<min(last.Attempt, 5), shortLived))
}

// clearElsewhere stops what runs outside the live sandbox, and reports whether nothing
// does: a container's successor must not start beside it.
func (d *decider) clearElsewhere() bool {
	free := true
	list := d.instances()
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && c.SandboxID != d.sandbox.ID {
			d.terminator.Stop(c, d.terminator.Term(d.in.Now, nil, "its sandbox was replaced"))
			d.plan.AddWait(pod.Wait{Code: pod.WaitOldInstance, Container: c.Name})
			free = false
		}
	}
	return free
}

// initialize works through the init containers and sidecars and reports whether
// the main containers may start. Init containers run again in a new sandbox. Each
// waits until the one before it has succeeded, or for a sidecar: has started.
func (d *decider) initialize() bool {
	for i := range d.containers {
		m, over := &d.containers[i], d.turnOver(i)
		switch m.Role {
		case container.Sidecar:
			// One that is down doesn't hold up what came after it already.
			if (d.start(m) || !m.Runs() || !m.Started) && !over {
				return false
			}
		case container.Init:
			if over || m.Succeeded() {
				continue
			}
			if !m.Runs() {
				d.start(m)
			} else {
				d.plan.AddWait(pod.Wait{Code: pod.WaitInit, Container: m.Spec.Name})
			}
			return false
		}
	}
	return true
}

// noteInitialized remembers that the pod's initialization is over in its sandbox.
func (d *decider) noteInitialized() {
	if d.sandbox != nil && d.checkpoint().RestartAll == nil && d.initDone() {
		d.mem.Initialized = d.sandbox.ID
	}
}

// initDone reports whether every init container has succeeded, and every sidecar is started or was before what
// came after it was created.
func (d *decider) initDone() bool {
	for i := range d.containers {
		m := &d.containers[i]
		if (m.Role == container.Sidecar && !m.Started || m.Role == container.Init && !m.Succeeded()) && !d.turnOver(i) {
			return false
		}
	}
	return true
}

// turnOver reports whether the init container or sidecar of this index has had its turn in this sandbox: the
// initialization is over, or one that comes after it was created. Its own record may be removed since.
func (d *decider) turnOver(i int) bool {
	if d.sandbox != nil && d.mem.Initialized == d.sandbox.ID {
		return true
	}
	return slices.ContainsFunc(d.containers[i+1:], func(m container.Container) bool {
		return m.Role != container.Ephemeral && m.Current != nil
	})
}
