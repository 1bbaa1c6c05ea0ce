package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// startMains starts the main containers in order: a container starts after the containers before it have started
// (including postStart hooks), have failed or are in back-off.
func (d *decider) startMains() {
	for i := range d.containers {
		if m := &d.containers[i]; m.Role == container.Main && d.start(m) {
			return
		}
	}
}

// startEphemeral starts ephemeral containers regardless of the other containers: they exist to debug those (KEP-277).
func (d *decider) startEphemeral() {
	for i := range d.containers {
		m := &d.containers[i]
		if m.Role != container.Ephemeral || !d.mayStart(m) {
			continue
		}
		if t := d.containers.Named(m.Target); m.Target != "" && (t == nil || !t.Runs()) {
			d.plan.AddWait(pod.Wait{Code: pod.WaitTarget, Container: m.Spec.Name, Other: m.Target})
			continue
		}
		d.start(m)
	}
}

// mayStart reports whether an ephemeral container has never been started.
func (d *decider) mayStart(m *container.Container) bool {
	if m.Newest == nil {
		return d.mem.Attempts[m.Spec.Name] == 0
	}
	return m.Newest.State == pod.ContainerCreated
}

// start brings one container nearer to running. It reports whether the start is in progress, so that the next
// container has to wait.
func (d *decider) start(m *container.Container) bool {
	name := m.Spec.Name
	if kind, ok := d.plan.Busy("container/" + name); ok {
		d.addActionWait(m, kind)
		return true
	}
	if d.clearAbortedStart(name) {
		return true
	}
	if cur := m.Current; cur != nil {
		switch cur.State {
		case pod.ContainerRunning:
			return d.hook(m)
		case pod.ContainerCreated:
			if !otherImage(m, cur) {
				return d.bring(m, pod.Action{Kind: pod.StartContainer, Container: name, ID: cur.ID,
					Attempt: cur.Attempt, Why: "it is created and not started"})
			}
		}
	}
	if d.clearNewest(m) {
		return true
	}
	if due, _ := d.backoff(m); d.in.Now.Before(due) {
		d.recordBackOff(name, m.Newest.ID)
		d.plan.WakeAt(due)
		d.plan.AddWait(d.backoffWait(m, due))
		return false
	}
	if m.Newest != nil && !d.mayFollow(m) {
		return false // it has ended for good
	}
	return d.startNew(m)
}

// backoffWait is the wait for a container's restart, with the cause of its exit.
func (d *decider) backoffWait(m *container.Container, due time.Time) pod.Wait {
	w := pod.Wait{Code: pod.WaitBackOff, Container: m.Spec.Name, Next: due, ExitCode: container.ExitCode(m.Newest)}
	failed, known := d.checkpoint().Failed[m.Newest.ID]
	switch reason := m.Newest.Reason; {
	case known:
		w.Cause, w.Probe, w.Message = failed.Cause, failed.Probe, failed.Message
	case reason == pod.ReasonStartError:
		w.Reason, w.Message, w.Disk = reason, m.Newest.Message, m.Newest.DiskFull
	case reason == pod.ReasonOOMKilled && w.ExitCode != 0:
		w.Reason = reason
	}
	return w
}

// clearNewest removes or stops an instance that blocks a container's next instance: it was created and never ran (then
// its number is used again), or the runtime reports its state as unknown. clearNewest reports whether there is such an
// instance.
func (d *decider) clearNewest(m *container.Container) bool {
	inst := m.Newest
	if inst == nil {
		return false
	}
	a := pod.Action{Container: inst.Name, ID: inst.ID, Attempt: inst.Attempt}
	w := pod.Wait{Container: inst.Name}
	switch {
	case inst.State == pod.ContainerCreated:
		w.Code, a.Kind, a.Why = pod.WaitUnusable, pod.RemoveContainer, "it never ran and can't be used any more"
	case inst.State == pod.ContainerUnknown && !d.mem.Stopped[inst.ID] && d.mayFollow(m):
		w.Code, a.Kind, a.Grace, a.Why = pod.WaitUnknown, pod.StopContainer, termination.MinGrace,
			"the runtime doesn't know whether it still runs"
	default:
		return false
	}
	d.plan.AddWait(w)
	d.plan.AddRetryWait(inst.Name, a)
	d.plan.Do(a)
	return true
}

// mayFollow reports whether a container's newest instance, which isn't running any more, will be followed by another
// one. Init containers run again in a new sandbox.
func (d *decider) mayFollow(m *container.Container) bool {
	return d.again(m) || m.Role == container.Init && m.Current == nil
}

// backoff returns when a container's next instance may start, and the delay after the end of the last instance. There
// is no delay in five cases: the container never ran; it was removed for a restart of all containers; it was killed
// because of an edit; it was edited after its end; it is an init container that succeeded and runs again in a new
// sandbox.
func (d *decider) backoff(m *container.Container) (due time.Time, delay time.Duration) {
	inst := m.Newest
	if inst == nil || slices.Contains(d.checkpoint().Renew, inst.ID) || !d.again(m) || d.edited(m) ||
		m.Role == container.Init && container.ExitCode(inst) == 0 {
		return time.Time{}, 0
	}
	dated := d.onClock(inst)
	ended, known := d.mem.Ended[inst.ID]
	if !known {
		ended = dated.FinishedAt
	}
	delay = restart.Capped(restart.Delay(dated), d.in.Node.MaxBackoff)
	return restart.After(ended, delay, d.in.Now), delay
}

// edited reports whether a container's newest instance was created from another image or with other resources than the
// next instance will be. In that case, failures of the newest instance say nothing about the next one.
func (d *decider) edited(m *container.Container) bool {
	if otherImage(m, m.Newest) {
		return true
	}
	with, next := m.Newest.CreatedWith, m.Spec.Resources
	if r := d.allocatedTo(m); r != nil {
		next = *r
	}
	return with != nil && with.Resources != nil && !allocated.Same(*with.Resources, next)
}

// hook runs the postStart hook of a running container unless it has completed. It reports whether the container has
// to wait for it.
func (d *decider) hook(m *container.Container) bool {
	if m.PostStartDone {
		return false
	}
	if _, failed := d.hookFailed(m.Current); failed {
		return true
	}
	if _, terminating := d.mem.Kills[m.Current.ID]; terminating {
		return true
	}
	d.bring(m, pod.Action{Kind: pod.PostStart, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt,
		Why: "it comes before the container counts as started"})
	return true
}

// startNew ensures the image and creates the next instance from it.
func (d *decider) startNew(m *container.Container) bool {
	name := m.Spec.Name
	ref := d.mem.Images[name]
	if ref == "" {
		return d.bring(m, ensureImage(m))
	}
	a := pod.Action{Kind: pod.CreateContainer, Container: name, SandboxID: d.sandbox.ID, ImageRef: ref,
		Attempt: d.nextAttempt(m),
		Backoff: d.nextBackoff(m), Resources: d.allocatedTo(m), Why: "it never ran"}
	if c, ok := d.checkpoint().Carried[name]; ok && m.Newest == nil && c.Last != nil {
		a.Why = fmt.Sprintf("the last instance ended with code %d (%s) and was removed", c.Last.ExitCode, c.Last.Reason)
	} else if m.Newest != nil {
		a.Why = fmt.Sprintf("the last instance ended with code %d (%s)", container.ExitCode(m.Newest), m.Newest.Reason)
	}
	return d.bring(m, a)
}

// ensureImage is the action that makes a container's image available.
func ensureImage(m *container.Container) pod.Action {
	return pod.Action{Kind: pod.EnsureImage, Container: m.Spec.Name, Image: m.Spec.Image,
		Why: "its image has to be present"}
}

// nextAttempt is the attempt number of a container's next instance.
func (d *decider) nextAttempt(m *container.Container) int {
	n := d.mem.Attempts[m.Spec.Name]
	switch {
	case m.Newest == nil:
		return n
	case m.Newest.State == pod.ContainerCreated:
		// It never ran: its replacement gets the same number.
		return max(n, m.Newest.Attempt)
	}
	return max(n, m.Newest.Attempt+1)
}

// nextBackoff is the back-off to record on a container's next instance. A kill because of an edit doesn't count as a
// failure, and an edit after the end of the last instance resets the back-off.
func (d *decider) nextBackoff(m *container.Container) time.Duration {
	if m.Newest == nil {
		return d.checkpoint().Carried[m.Spec.Name].Backoff
	}
	if slices.Contains(d.checkpoint().Renew, m.Newest.ID) || d.edited(m) {
		return 0
	}
	return restart.Next(d.onClock(m.Newest), d.in.Node.FirstBackoff, d.in.Node.MaxBackoff)
}

// bring requests an action on a container, and reports whether the action starts now. If the action is in back-off,
// bring adds the wait for its retry instead.
func (d *decider) bring(m *container.Container, a pod.Action) bool {
	if r, ok := d.plan.Waits(a); ok {
		d.plan.WakeAt(r.At)
		d.recordPullBackOff(m, a, r)
		d.plan.AddRetryWait(m.Spec.Name, a)
		return false
	}
	d.addActionWait(m, a.Kind)
	return d.plan.Do(a)
}

// recordPullBackOff records the BackOff event of an image, once per failed pull.
func (d *decider) recordPullBackOff(m *container.Container, a pod.Action, r plan.Retry) {
	id := fmt.Sprintf("pull %d", r.Count)
	if a.Kind != pod.EnsureImage || r.Failure.Reason != pod.ReasonErrImagePull ||
		d.mem.BackoffTold[m.Spec.Name] == id {
		return
	}
	d.mem.BackoffTold[m.Spec.Name] = id
	d.plan.RecordPullBackOff(m.Spec.Name, cmp.Or(r.Failure.Image, m.Spec.Image))
}

// addActionWait adds the wait for an action on a container.
func (d *decider) addActionWait(m *container.Container, kind pod.ActionKind) {
	w := pod.Wait{Code: pod.WaitAction, Container: m.Spec.Name, Action: kind}
	if kind == pod.EnsureImage {
		w.Image = m.Spec.Image
	}
	d.plan.AddWait(w)
}

// recordBackOff records the BackOff event, once per ended instance.
func (d *decider) recordBackOff(name, instance string) {
	if d.mem.BackoffTold[name] == instance {
		return
	}
	d.mem.BackoffTold[name] = instance
	d.plan.RecordCrashBackOff(d.in.Pod, name)
}
