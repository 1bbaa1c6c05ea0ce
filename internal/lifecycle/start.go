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
	return m.Current != nil && m.Current.State == pod.ContainerCreated
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
			if otherImage(m, cur) {
				d.plan.Because(plan.Wait{Container: name, Text: "is made anew: the spec asks for another image now"})
				d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: name, ID: cur.ID, Attempt: cur.Attempt, Why: "the spec asks for another image now"})
				return true
			}
			return d.bring(m, pod.Action{Kind: pod.StartContainer, Container: name, ID: cur.ID, Attempt: cur.Attempt, Why: "it is created and not started"})
		}
	}
	if m.Newest == nil {
		if c, ok := d.kept().Carried[name]; ok && d.in.Now.Before(c.NotBefore) {
			d.backoff(name, "", c.NotBefore)
			return false
		}
		return d.startNew(m)
	}
	if m.Newest.Ended() {
		again := d.again(m)
		if m.Role == member.Init && m.Current == nil {
			again = true // in a new sandbox, they run again
		}
		if !again {
			return false
		}
		if due := d.due(m.Newest); m.Current != nil && d.in.Now.Before(due) {
			d.tellBackoff(m)
			d.backoff(name, fmt.Sprintf(" after it ended with code %d", member.ExitCode(m.Newest)), due)
			return false
		}
	}
	return d.startNew(m)
}

func (d *decider) backoff(name, after string, due time.Time) {
	d.plan.WakeAt(due)
	d.plan.Because(plan.Wait{Container: name, Text: "back-off before it is started again" + after, Next: due,
		Advice: "see why it ended: `deckhand logs --previous`"})
}

// due is when the instance that follows inst may be started: at once if it was
// ended to be renewed.
func (d *decider) due(inst *pod.Container) time.Time {
	if slices.Contains(d.kept().Renew, inst.ID) {
		return d.in.Now
	}
	return restart.Due(inst, d.in.Now)
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
	if m.Newest != nil {
		a.Why = fmt.Sprintf("the last instance ended with code %d (%s)", member.ExitCode(m.Newest), m.Newest.Reason)
	}
	return d.bring(m, a)
}

// nextAttempt numbers a member's next instance.
func (d *decider) nextAttempt(m *member.Member) int {
	n := d.mem.Attempts[m.Spec.Name]
	if m.Newest != nil {
		n = max(n, m.Newest.Attempt+1)
	}
	return n
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
	return restart.Next(m.Newest, d.in.Node.MaxBackoff)
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

func inWords(kind pod.ActionKind, c *v1.Container) string {
	switch kind {
	case pod.EnsureImage:
		return "waits for image " + c.Image
	case pod.CreateContainer:
		return "is being created"
	case pod.PostStart:
		return "its postStart hook is running"
	default:
		return "is being started"
	}
}

// tellBackoff gives the BackOff event, once for each instance that ended.
func (d *decider) tellBackoff(m *member.Member) {
	name, inst := m.Spec.Name, m.Newest
	if d.mem.BackoffTold[name] == inst.ID {
		return
	}
	d.mem.BackoffTold[name] = inst.ID
	d.plan.Event(v1.EventTypeWarning, "BackOff", name, fmt.Sprintf("Back-off %s restarting failed container %s in pod %s_%s(%s)",
		restart.Delay(inst), name, d.in.Pod.Name, d.in.Pod.Namespace, d.in.Pod.UID))
}
