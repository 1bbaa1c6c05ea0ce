package lifecycle

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// buildStatus builds the pod's API status from this decision and stores it in Memory. If the pod's object is being
// deleted, its final status is built only once.
func (d *decider) buildStatus() *v1.PodStatus {
	if d.stopped && d.checkpoint().Final == nil {
		final := d.statusOf(true)
		d.draft.Change(func(k *pod.Checkpoint) { k.Final, k.Terminal = final, final.Phase })
	}
	st := &v1.PodStatus{}
	final := d.checkpoint().Final
	if d.mem.FinalTold = d.mayReportFinal(); d.mem.FinalTold {
		*st = *final
		st.Conditions = slices.Clone(st.Conditions)
	} else {
		terminalDurable := d.terminal() != "" && d.terminalIsDurable()
		st = d.statusOf(d.hasEnded() && (d.in.Stop == nil || !d.in.RequiresTerminalPhase || terminalDurable))
	}
	apistatus.AddOthers(st, d.in.Pod)
	d.mem.Status = st
	return st
}

// statusOf builds the node's part of the status. ended says that this status may report the end of the pod.
func (d *decider) statusOf(ended bool) *v1.PodStatus {
	f := &apistatus.Facts{
		Now: d.in.Now, Pod: d.in.Pod, HostIPs: d.in.Node.HostIPs, Runtime: d.in.Node.RuntimeName,
		StartTime: d.started, Initialized: d.initialized(), Stopping: d.in.Stop != nil,
		RequiresTerminalPhase: d.in.RequiresTerminalPhase,
		Ended:                 ended, Termination: d.checkpoint().Termination, Last: d.mem.Status,
	}
	if f.Ended && d.terminalIsDurable() {
		f.Terminal = d.terminal()
	}
	if d.sandbox != nil && !d.mem.Stopped[d.sandbox.ID] {
		f.Sandbox = d.sandbox
	}
	f.AllRestarting = d.checkpoint().RestartAll != nil
	d.addResize(f)
	f.Containers = make([]apistatus.Container, len(d.containers))
	for i := range d.containers {
		f.Containers[i] = d.facts(&d.containers[i], f.Initialized)
		f.Containers[i].Passed = d.passed(i)
	}
	return apistatus.Build(f)
}

// hasEnded reports whether nothing of the pod runs or is being created.
func (d *decider) hasEnded() bool {
	_, making := d.making()
	return !making && !d.anyRuns()
}

// anyRuns reports whether an instance of the pod runs.
func (d *decider) anyRuns() bool {
	return slices.ContainsFunc(d.instances(), func(c pod.Container) bool { return c.State == pod.ContainerRunning })
}

// terminalIsDurable reports whether the source or the checkpoint on disk has the terminal phase of the pod, or the
// disk can't be written. Otherwise the next agent might report another phase.
func (d *decider) terminalIsDurable() bool {
	return d.draft.Disk != nil && d.draft.Disk.Terminal != "" || d.durable() ||
		pod.Terminal(d.in.Pod.Status.Phase) != ""
}

// facts returns the facts that the API status of one container depends on.
func (d *decider) facts(m *container.Container, initialized bool) apistatus.Container {
	newest := m
	m = d.shown(m)
	// An instance that has a successor runs again, whatever the checkpoint still records for it.
	followed := m != newest && m.Newest != nil && d.in.Stop == nil && !d.finished
	c := apistatus.Container{Container: m, Restarts: max(d.mem.Attempts[m.Spec.Name]-1, 0), RunsAgain: followed ||
		d.runsAgain(m, initialized)}
	c.Waiting = d.waitingOf(m, c.RunsAgain)
	if carried, ok := d.checkpoint().Carried[m.Spec.Name]; ok &&
		(m.Newest == nil || m.Newest.Attempt == carried.Attempt) {
		c.Carried = carried.Last
	}
	if m.Role == container.Ephemeral {
		return c
	}
	if a := d.in.Allocation; a != nil {
		if r, ok := a.Containers[m.Spec.Name]; ok {
			c.Allocated = &r
		}
	}
	if m.Newest != nil && m.Newest.State == pod.ContainerRunning {
		c.Actual = resizing.Actual(m.Newest, d.checkpoint())
	} else if c.Allocated != nil {
		c.Actual = c.Allocated
	}
	return c
}

// shown is the container with the instance that the status describes: the newest instance, or its ended predecessor
// while the newest is being started. It has no instance if the newest one has vanished and only older ones are left.
func (d *decider) shown(m *container.Container) *container.Container {
	other := *m
	other.Newest, other.Previous, other.Current = nil, nil, nil
	switch {
	case m.Newest == nil:
		return m
	case m.Newest.Ended() && d.mem.Attempts[m.Spec.Name] > m.Newest.Attempt+1:
		return &other
	case !m.Starting() || m.Previous == nil || !m.Previous.Ended():
		return m
	}
	if _, failed := d.hookFailed(m.Newest); failed {
		return m // the newest instance won't be started, and the status shows that
	}
	other.Newest = m.Previous
	return &other
}

// dateStart determines when this node first saw the pod (API: PodStatus.startTime). A static pod has the time in an
// annotation; for others it is in the checkpoint or in the source's status.
func (d *decider) dateStart() {
	if d.started = d.checkpoint().StartTime; !d.started.IsZero() {
		return
	}
	if seen, ok := d.in.Pod.Annotations[pod.AnnotationConfigSeen]; ok {
		if t, err := time.Parse(time.RFC3339, seen); err == nil {
			d.started = t
			return
		}
	}
	if known := d.in.Pod.Status.StartTime; known != nil {
		d.started = known.Time
		return
	}
	d.started = d.in.Now
	for _, sb := range d.sandboxes() {
		if sb.CreatedAt.Before(d.started) {
			d.started = sb.CreatedAt
		}
	}
	d.draft.Change(func(k *pod.Checkpoint) { k.StartTime = d.started })
}

// initialized reports whether every init container has succeeded (in this sandbox, or for good) and every sidecar had
// started before the main containers started.
func (d *decider) initialized() bool {
	if d.terminal() == v1.PodSucceeded {
		return true
	}
	if d.finished {
		for i := range d.containers {
			if m := &d.containers[i]; m.Role == container.Main && m.Newest != nil {
				return true
			}
		}
	}
	return d.initDone()
}

// passed reports whether later containers show that an init container has succeeded, even if its record is gone: one
// of them was created in the live sandbox, or ran in a pod that has ended.
func (d *decider) passed(i int) bool {
	inst := d.containers[i].Newest
	if d.containers[i].Role != container.Init {
		return false
	}
	over := d.in.Stop != nil || d.terminal() != ""
	return slices.ContainsFunc(d.containers[i+1:], func(m container.Container) bool {
		return m.Role != container.Ephemeral &&
			(m.Current != nil || over && m.Newest != nil && (inst == nil || inst.SandboxID == m.Newest.SandboxID))
	})
}

// waitingOf returns why a container doesn't run. It is nil for a running container, and for one that has ended, until
// its back-off or restart is reported. A container that is restarted after an edit or a failed probe is reported as
// waiting if its exit code alone means that it has ended for good: API servers reject every later status in which such
// a container runs again ("may not be transitioned to non-terminated state"). For the same reason it is reported as
// waiting in a pod that has to end while the container's next start is under way.
func (d *decider) waitingOf(m *container.Container, runsAgain bool) *v1.ContainerStateWaiting {
	inst := m.Newest
	switch {
	case inst == nil && m.Role == container.Ephemeral && !d.mayStart(m):
		return nil
	case m.Starting():
		return d.waiting(m)
	case inst != nil && inst.Ended() && !runsAgain && d.isStarting(m.Spec.Name) && d.unexpected(m):
		return d.waiting(m)
	case inst != nil && !runsAgain:
		return nil
	case d.checkpoint().RestartAll != nil:
		return d.waiting(m)
	}
	failure := d.waitingFailure(m)
	due, delay := d.backoff(m)
	// A container that is being started after its back-off keeps the state CrashLoopBackOff until it has started.
	if _, starting := d.plan.Busy("container/" + m.Spec.Name); d.in.Now.Before(due) || delay > 0 && starting &&
		failure == nil {
		return apistatus.CrashLoop(d.in.Pod, m.Spec.Name, delay)
	}
	if inst == nil || failure == nil && d.unexpected(m) {
		return d.waiting(m)
	}
	return failure
}

// isStarting reports whether an instance of the container is being started, or its postStart hook is running.
func (d *decider) isStarting(name string) bool {
	kind, busy := d.plan.Busy("container/" + name)
	return busy && (kind == pod.StartContainer || kind == pod.PostStart)
}

// runsAgain reports whether a container has ended and will get another instance.
func (d *decider) runsAgain(m *container.Container, initialized bool) bool {
	if m.Newest == nil || !m.Newest.Ended() || d.finished || d.in.Stop != nil || d.checkpoint().Termination != nil ||
		!d.mem.Ending.IsZero() || m.Role == container.Ephemeral {
		return false
	}
	if d.checkpoint().RestartAll != nil {
		return true
	}
	if m.Role == container.Init {
		if initialized {
			return false
		}
		if m.Current == nil {
			return true
		}
	}
	return d.again(m)
}

// waiting returns why a container isn't running (again) yet.
func (d *decider) waiting(m *container.Container) *v1.ContainerStateWaiting {
	if d.checkpoint().RestartAll != nil && m.Role != container.Ephemeral {
		return apistatus.RestartingAll()
	}
	if w := d.waitingFailure(m); w != nil {
		return w
	}
	if len(d.in.Pod.Spec.InitContainers) > 0 && m.Role != container.Ephemeral {
		// The kubelet reports PodInitializing for every container of a pod with init containers, also after
		// initialization.
		return apistatus.Waiting(pod.ReasonPodInitializing, "")
	}
	return apistatus.Waiting(pod.ReasonContainerCreating, "")
}

// waitingFailure is the waiting state of a container with a failed postStart hook or with an action that will be
// retried; nil if there is neither.
func (d *decider) waitingFailure(m *container.Container) *v1.ContainerStateWaiting {
	name := m.Spec.Name
	if m.Newest != nil {
		if why, failed := d.hookFailed(m.Newest); failed {
			return apistatus.Waiting(pod.ReasonPostStartHookError, why)
		}
	}
	if r, ok := d.plan.Retrying(pod.Action{Kind: pod.StartContainer, Container: name}); ok {
		return apistatus.Waiting(r.Failure.Reason, r.Failure.Message)
	}
	r, ok := d.plan.Retrying(pod.Action{Kind: pod.EnsureImage, Container: name})
	if !ok {
		return nil
	}
	if _, pulling := d.plan.Busy("container/" + name); r.Failure.Reason == pod.ReasonErrImagePull && !pulling {
		return apistatus.PullBackOff(cmp.Or(r.Failure.Image, m.Spec.Image), &r.Failure)
	}
	return apistatus.Waiting(r.Failure.Reason, r.Failure.Message)
}

// addResize adds the pod-level resources, and the conditions of a resize that waits or is under way (KEP-1287).
func (d *decider) addResize(f *apistatus.Facts) {
	a := d.in.Allocation
	if a == nil {
		return
	}
	if p := d.in.Pod.Spec.Resources; p != nil {
		f.Resources = a.Pod
		if d.mem.Allocated != nil {
			f.Resources = d.mem.Allocated.Pod
		}
	}
	f.Requests = a.Total
	if r, ok := d.plan.Retrying(pod.Action{Kind: pod.Allocate}); ok && d.resizing.Wanted {
		f.ResizePending = &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue,
			Reason: string(r.Failure.Reason), Message: r.Failure.Message}
	}
	if d.resizing.UnderWay() {
		// A pending resize is for the newest spec. A resize under way is for the spec for which resources were
		// allocated (KEP-5067; kubernetes/kubernetes#131157).
		f.ResizeInProgress = &v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue,
			ObservedGeneration: a.Generation}
		if r, ok := d.resizeFailure(); ok {
			f.ResizeInProgress.Reason, f.ResizeInProgress.Message = v1.PodReasonError, r.Failure.Error()
		}
	}
}
