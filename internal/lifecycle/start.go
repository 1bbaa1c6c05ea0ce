package lifecycle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// startMains starts the main containers in their order: one begins when those
// before it have started (with their postStart hooks), failed or wait for another try.
func (d *decider) startMains() {
	for i := range d.members {
		if m := &d.members[i]; m.Role == member.Main && d.start(m) {
			return
		}
	}
}

// startEphemeral starts ephemeral containers, whatever the others do: they are
// there to find out what is wrong with them (KEP-277).
func (d *decider) startEphemeral() {
	for i := range d.members {
		m := &d.members[i]
		if m.Role != member.Ephemeral || !d.mayStart(m) {
			continue
		}
		if t := d.members.Named(m.Target); m.Target != "" && (t == nil || !t.Runs()) {
			d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: "waits for its target container " + m.Target + " to run"})
			continue
		}
		d.start(m)
	}
}

// mayStart reports whether an ephemeral container has never been started.
func (d *decider) mayStart(m *member.Member) bool {
	if m.Newest == nil {
		return d.mem.Attempts[m.Spec.Name] == 0
	}
	return m.Newest.State == pod.ContainerCreated
}

// start brings one container nearer to running. It reports whether that is under
// way, so that the next one has to wait.
func (d *decider) start(m *member.Member) bool {
	name := m.Spec.Name
	if kind, ok := d.plan.Busy("container/" + name); ok {
		d.plan.Because(plan.Wait{Container: name, Text: inWords(kind, m.Spec)})
		return true
	}
	if d.clearAside(name) {
		return true
	}
	if cur := m.Current; cur != nil {
		switch cur.State {
		case pod.ContainerRunning:
			return d.hook(m)
		case pod.ContainerCreated:
			if !otherImage(m, cur) {
				return d.bring(m, pod.Action{Kind: pod.StartContainer, Container: name, ID: cur.ID, Attempt: cur.Attempt, Why: "it is created and not started"})
			}
		}
	}
	if d.clearNewest(m) {
		return true
	}
	if due, waits := d.restartDue(m); waits {
		d.plan.WakeAt(due)
		text := "back-off before it is started again"
		if m.Newest != nil {
			text += fmt.Sprintf(" after it ended with code %d", member.ExitCode(m.Newest))
		}
		d.plan.Because(plan.Wait{Container: name, Text: text, Next: due,
			Advice: "see why it ended: `deckhand logs --previous`"})
		return false
	}
	if m.Newest != nil && !d.mayFollow(m) {
		return false // ended for good
	}
	return d.startNew(m)
}

// clearNewest removes what is in the way of a member's next instance: one that was
// made and never ran (its number is used again), or one of which the runtime doesn't know
// whether it still runs. It reports whether that is to be waited for.
func (d *decider) clearNewest(m *member.Member) bool {
	inst := m.Newest
	if inst == nil {
		return false
	}
	a := pod.Action{Container: inst.Name, ID: inst.ID, Attempt: inst.Attempt}
	switch {
	case inst.State == pod.ContainerCreated:
		a.Kind, a.Why = pod.RemoveContainer, "it never ran and can't be used any more"
	case inst.State == pod.ContainerUnknown && !d.mem.Stopped[inst.ID] && d.mayFollow(m):
		a.Kind, a.Why = pod.StopContainer, "the runtime doesn't know whether it still runs"
	default:
		return false
	}
	d.plan.Because(plan.Wait{Container: inst.Name, Text: "its last instance is cleared away: " + a.Why})
	d.plan.BecauseRetried(inst.Name, a)
	d.plan.Do(a)
	return true
}

// mayFollow reports whether another instance follows a member's newest, which has
// ended. Init containers run again in a new sandbox.
func (d *decider) mayFollow(m *member.Member) bool {
	return d.again(m) || m.Role == member.Init && m.Current == nil
}

// restartDue is when a member's next instance may be started, if that is still to
// be waited for.
func (d *decider) restartDue(m *member.Member) (due time.Time, waits bool) {
	due, delay, told := d.backoff(m)
	if !d.in.Now.Before(due) {
		return time.Time{}, false
	}
	d.tellBackoff(m.Spec.Name, told, delay)
	return due, true
}

// backoff is when a member's next instance may be started, how long that is after the
// last one ended, and by what name to tell that once. It is at once for one that never
// ran, one that was ended to be renewed, and an init container that has succeeded and
// runs again in a new sandbox.
func (d *decider) backoff(m *member.Member) (due time.Time, delay time.Duration, told string) {
	inst := m.Newest
	var ended time.Time
	switch c, carried := d.kept().Carried[m.Spec.Name]; {
	case inst == nil && carried && c.Last != nil:
		ended, delay, told = c.Last.FinishedAt.Time, c.Delay, fmt.Sprintf("carried %d", c.Attempt)
	case inst == nil || slices.Contains(d.kept().Renew, inst.ID) || !d.again(m) || m.Role == member.Init && member.ExitCode(inst) == 0:
		return time.Time{}, 0, ""
	default:
		ended, delay, told = inst.FinishedAt, restart.Delay(inst), inst.ID
	}
	delay = restart.Capped(delay, d.in.Node.MaxBackoff)
	return restart.After(ended, delay, d.in.Now), delay, told
}

// hook runs the postStart hook of a running container that hasn't had it. It
// reports whether that is to be waited for.
func (d *decider) hook(m *member.Member) bool {
	if m.Hooked {
		return false
	}
	if _, failed := d.mem.HookFailed[m.Current.ID]; failed {
		return true
	}
	if _, ending := d.mem.Kills[m.Current.ID]; ending {
		return true
	}
	d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: "its postStart hook is running"})
	d.plan.Do(pod.Action{Kind: pod.PostStart, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt, Why: "it comes before the container counts as started"})
	return true
}

// startNew makes the image present and the next instance from it.
func (d *decider) startNew(m *member.Member) bool {
	name := m.Spec.Name
	ref := d.mem.Images[name]
	if ref == "" {
		return d.bring(m, pod.Action{Kind: pod.EnsureImage, Container: name, Image: m.Spec.Image, Why: "its image has to be present"})
	}
	a := pod.Action{Kind: pod.CreateContainer, Container: name, SandboxID: d.sandbox.ID, ImageRef: ref, Attempt: d.nextAttempt(m),
		Backoff: d.nextBackoff(m), Resources: d.grantedTo(m), Why: "it never ran"}
	if c, ok := d.kept().Carried[name]; ok && m.Newest == nil && c.Last != nil {
		a.Why = fmt.Sprintf("the last instance ended with code %d (%s) and was removed", c.Last.ExitCode, c.Last.Reason)
	} else if m.Newest != nil {
		a.Why = fmt.Sprintf("the last instance ended with code %d (%s)", member.ExitCode(m.Newest), m.Newest.Reason)
	}
	return d.bring(m, a)
}

// nextAttempt numbers a member's next instance.
func (d *decider) nextAttempt(m *member.Member) int {
	n := d.mem.Attempts[m.Spec.Name]
	switch {
	case m.Newest == nil:
		return n
	case m.Newest.State == pod.ContainerCreated:
		// It never ran: the one that takes its place has its number.
		return max(n, m.Newest.Attempt)
	}
	return max(n, m.Newest.Attempt+1)
}

// nextBackoff is recorded on a member's next instance. One that was ended to be
// renewed hasn't failed.
func (d *decider) nextBackoff(m *member.Member) time.Duration {
	if m.Newest == nil {
		return d.kept().Carried[m.Spec.Name].Backoff
	}
	if slices.Contains(d.kept().Renew, m.Newest.ID) {
		return 0
	}
	return restart.Next(m.Newest, d.in.Node.FirstBackoff, d.in.Node.MaxBackoff)
}

// bring begins an action on a container, or says how long it has to wait.
func (d *decider) bring(m *member.Member, a pod.Action) bool {
	if r, ok := d.plan.Waits(a); ok {
		d.plan.WakeAt(r.At)
		d.tellPullBackoff(m, a, r)
		d.plan.BecauseFailed(m.Spec.Name, r)
		return false
	}
	d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: inWords(a.Kind, m.Spec)})
	return d.plan.Do(a)
}

// tellPullBackoff gives the BackOff event of an image, once for each failed pull.
func (d *decider) tellPullBackoff(m *member.Member, a pod.Action, r plan.Retry) {
	told := fmt.Sprintf("pull %d", r.Count)
	if a.Kind != pod.EnsureImage || r.Failure.Reason != errImagePull || d.mem.BackoffTold[m.Spec.Name] == told {
		return
	}
	d.mem.BackoffTold[m.Spec.Name] = told
	d.plan.Event(v1.EventTypeNormal, "BackOff", m.Spec.Name, fmt.Sprintf("Back-off pulling image %q", m.Spec.Image))
}

// ImageWait is the reason of a container whose image is being made present: who tells
// reasons may add how far its pull is.
func ImageWait(image string) string { return "waits for image " + image }

func inWords(kind pod.ActionKind, c *v1.Container) string {
	switch kind {
	case pod.EnsureImage:
		return ImageWait(c.Image)
	case pod.CreateContainer:
		return "is being created"
	case pod.PostStart:
		return "its postStart hook is running"
	default:
		return "is being started"
	}
}

// tellBackoff gives the BackOff event, once for each instance that ended.
func (d *decider) tellBackoff(name, instance string, delay time.Duration) {
	if d.mem.BackoffTold[name] == instance {
		return
	}
	d.mem.BackoffTold[name] = instance
	d.plan.Event(v1.EventTypeWarning, "BackOff", name, fmt.Sprintf("Back-off %s restarting failed container %s in pod %s_%s(%s)",
		delay, name, d.in.Pod.Name, d.in.Pod.Namespace, d.in.Pod.UID))
}
