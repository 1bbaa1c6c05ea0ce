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

// run decides for a pod that should run.
func (d *decider) run() {
	if d.restartAll() || d.endWhole() {
		return
	}
	if !d.admitted() {
		// AdmitPod writes the pod's allocation to disk, so the pod has to be identified before.
		if d.identify() {
			d.admit()
		}
		return
	}
	d.measure()
	up := d.allUp()
	if !d.mem.Prepared {
		// A pod that already runs is also prepared again: existing parts stay, missing parts are created, and the
		// packages that prepare the pod get their data about it.
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

// recordOutcome records the terminal phase of the pod in the checkpoint.
func (d *decider) recordOutcome() {
	if k := d.checkpoint(); d.terminal() != "" || k.RestartAll != nil || k.Termination != nil {
		return
	}
	if phase := d.outcome(); phase != "" {
		if slices.ContainsFunc(d.containers, d.neverBegins) {
			d.plan.RecordNeverStarts()
		}
		d.draft.Change(func(k *pod.Checkpoint) { k.Terminal = phase })
	}
}

// outcome is the terminal phase that results from the ends of the pod's containers; empty if the pod continues.
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

// neverBegins reports whether a main container hasn't run and never will. With restartPolicy Never, a pod whose sandbox
// was lost isn't started again in another sandbox (kubernetes/kubernetes#35309), unless none of its containers had run
// (#79451).
func (d *decider) neverBegins(m container.Container) bool {
	return d.sandbox == nil && d.in.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && m.Role == container.Main &&
		(m.Newest == nil || m.Newest.State == pod.ContainerCreated) && restart.Never(d.in.Pod, m.Spec) &&
		slices.ContainsFunc(d.containers, func(o container.Container) bool {
			return o.Role != container.Ephemeral && o.Newest != nil && o.Newest.Ended()
		})
}

// onExit returns the consequence of the end of a container's newest instance.
func (d *decider) onExit(m *container.Container) restart.Answer {
	_, failed := d.checkpoint().Failed[m.Newest.ID]
	return restart.OnExit(d.in.Pod, m.Spec, m.Role, container.ExitCode(m.Newest), failed)
}

// unexpected reports whether a container is restarted although its exit code alone means that it has ended for good.
func (d *decider) unexpected(m *container.Container) bool {
	return m.LongRunning() &&
		restart.OnExit(d.in.Pod, m.Spec, m.Role, container.ExitCode(m.Newest), false) == restart.Stay
}

// again reports whether a container will be restarted after its newest instance, which has ended.
func (d *decider) again(m *container.Container) bool {
	if slices.Contains(d.checkpoint().Renew, m.Newest.ID) {
		return true
	}
	return d.onExit(m) != restart.Stay
}

// allUp reports the common case: every container that should run runs in the live sandbox, and none is left to be
// started.
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

// addReadinessWaits adds a wait for each container that isn't started, isn't ready or has ended for good, and for
// each readiness gate without a condition that is True.
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

// identify handles pods with a UID that the manifest sets: another version of such a manifest may define another pod
// with the same UID. identify records in the checkpoint which of these pods this is (Base), and reports whether the
// record is on disk. Nothing is created before that: after a restart, the agent might attribute it to another pod.
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

// admitted reports whether the node has admitted the pod. A pod that an earlier agent has started to create, or has
// allocated resources to, stays admitted, even if the node has changed since.
func (d *decider) admitted() bool {
	return d.mem.Admitted || d.mem.Prepared || d.in.Allocation != nil || !d.in.Observed.Empty()
}

// admit requests the node's decision whether the pod may run, before anything of it is created.
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
	// Containers that still run in a dead sandbox end before its successor starts: a container never has two running
	// instances.
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
		d.plan.Record(pod.ReasonSandboxChanged)
	}
	return false
}

// shortLived is the lifetime below which a sandbox counts as failed.
const shortLived = 30 * time.Second

// sandboxDue is the earliest time for creating the next sandbox. It is now, unless the last sandbox was created only
// shortly before.
func (d *decider) sandboxDue() time.Time {
	list := d.sandboxes()
	if len(list) == 0 {
		return time.Time{}
	}
	last := &list[0]
	created := d.dated(last.CreatedAt)
	if age := d.in.Now.Sub(created); age < 0 || age >= shortLived {
		return time.Time{}
	}
	return created.Add(min(time.Second<<min(last.Attempt, 5), shortLived))
}

// clearElsewhere stops instances outside the live sandbox, and reports whether none of them runs: a container's next
// instance must not start before the old one has ended.
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

// initialize works through the init containers and sidecars and reports whether the main containers may start. Init
// containers run again in a new sandbox. Each waits until the one before it has succeeded, or has started if that is
// a sidecar.
func (d *decider) initialize() bool {
	for i := range d.containers {
		m, over := &d.containers[i], d.turnOver(i)
		switch m.Role {
		case container.Sidecar:
			// A sidecar that is down doesn't block later containers that were started already.
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

// noteInitialized records that the pod's initialization is complete in its sandbox.
func (d *decider) noteInitialized() {
	if d.sandbox != nil && d.checkpoint().RestartAll == nil && d.initDone() {
		d.mem.Initialized = d.sandbox.ID
	}
}

// initDone reports whether every init container has succeeded and every sidecar has started; a sidecar may have
// stopped since, after a later container was created.
func (d *decider) initDone() bool {
	for i := range d.containers {
		m := &d.containers[i]
		if (m.Role == container.Sidecar && !m.Started || m.Role == container.Init && !m.Succeeded()) && !d.turnOver(i) {
			return false
		}
	}
	return true
}

// turnOver reports whether the init container or sidecar with this index has had its turn in this sandbox: the
// initialization is complete, or a later container was created. Its own record may have been removed since.
func (d *decider) turnOver(i int) bool {
	if d.sandbox != nil && d.mem.Initialized == d.sandbox.ID {
		return true
	}
	return slices.ContainsFunc(d.containers[i+1:], func(m container.Container) bool {
		return m.Role != container.Ephemeral && m.Current != nil
	})
}
