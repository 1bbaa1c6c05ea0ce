package lifecycle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// run decides for a pod that should be there.
func (d *decider) run() {
	if d.restartAll() {
		return
	}
	d.measure()
	up := d.allUp()
	if !d.mem.Prepared {
		// A pod that is found running is prepared anew as well: what it has stays,
		// what is missing is made, and the rooms that prepare learn of it.
		d.prepare(up)
		if !up {
			return
		}
	}
	d.endDoomed()
	if up {
		d.whyNotReady()
		d.resize()
		d.tidy()
		return
	}
	if !d.haveSandbox() || !d.clearElsewhere() {
		return
	}
	d.startEphemeral()
	if d.initialize() {
		d.startMains()
	}
	d.whyNotReady()
	d.resize()
	d.tidy()
}

// settle finds out whether the pod has run to its end.
func (d *decider) settle() bool {
	if d.kept().Terminal == "" && d.in.Pod != nil && d.kept().RestartAll == nil {
		if phase := d.outcome(); phase != "" {
			d.keep(func(k *pod.Kept) { k.Terminal = phase })
		}
	}
	d.finished = d.kept().Terminal != ""
	return d.finished
}

// outcome is the phase in which the pod ends with what its containers came to;
// empty if it goes on.
func (d *decider) outcome() v1.PodPhase {
	phase := v1.PodSucceeded
	for i := range d.members {
		m := &d.members[i]
		ended := m.Newest != nil && m.Newest.Ended()
		switch m.Role {
		case member.Init:
			if ended && member.ExitCode(m.Newest) != 0 && !d.again(m) {
				return v1.PodFailed
			}
			if ended && d.onExit(m) == restart.All {
				return ""
			}
		case member.Main:
			if !ended || d.again(m) {
				return ""
			}
			if member.ExitCode(m.Newest) != 0 {
				phase = v1.PodFailed
			}
		case member.Sidecar:
			if ended && d.onExit(m) == restart.All {
				return ""
			}
		}
	}
	return phase
}

// onExit answers the end of a member's newest instance.
func (d *decider) onExit(m *member.Member) restart.Answer {
	return restart.OnExit(d.in.Pod, m.Spec, m.Role, member.ExitCode(m.Newest))
}

// again reports whether another instance follows the newest, which has ended.
func (d *decider) again(m *member.Member) bool {
	if slices.Contains(d.kept().Renew, m.Newest.ID) {
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
	for i := range d.members {
		m := &d.members[i]
		switch m.Role {
		case member.Main, member.Sidecar:
			if !m.Runs() || !m.Hooked {
				return false
			}
		case member.Ephemeral:
			if d.mayStart(m) {
				return false
			}
		}
	}
	return true
}

// whyNotReady tells which running containers aren't started or ready, and why.
func (d *decider) whyNotReady() {
	for i := range d.members {
		m := &d.members[i]
		switch {
		case m.Runs() && m.NotReady != "" && m.Hooked:
			d.because(waiting{container: m.Spec.Name, text: "runs, but isn't ready: " + m.NotReady,
				advice: "see what it says: `deckhand logs`"})
		case m.Role == member.Main && m.Newest != nil && m.Newest.Ended() && !d.again(m):
			d.because(waiting{container: m.Spec.Name,
				text: fmt.Sprintf("has ended with code %d and isn't started again; the others run on", member.ExitCode(m.Newest))})
		}
	}
	for _, g := range d.in.Pod.Spec.ReadinessGates {
		if !gateOpen(d.in.Pod, g.ConditionType) {
			d.because(waiting{text: fmt.Sprintf("waits for its readiness gate %s", g.ConditionType)})
		}
	}
}

func (d *decider) prepare(up bool) {
	a := pod.Action{Kind: pod.PreparePod, PodResources: d.mostAllowed(), Why: "folders, cgroup and volumes come before the sandbox"}
	if r, ok := d.retrying(a); ok {
		d.becauseFailed("", r)
	} else if !up {
		d.because(waiting{text: "folders, cgroup and volumes are being prepared"})
	}
	d.do(a)
}

// haveSandbox reports whether there is a live sandbox, and works towards one if not.
func (d *decider) haveSandbox() bool {
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
		if !d.stopContainers(d.termOf(d.in.Now, nil, "its sandbox is gone")) {
			d.because(waiting{text: "its sandbox is gone, what is left in it is being stopped"})
			return false
		}
		for i := range d.sandboxes() {
			if !d.stopSandbox(&d.sandboxes()[i], "the sandbox is not ready") {
				d.because(waiting{text: "the old sandbox is being taken down"})
				return false
			}
		}
	}
	a := pod.Action{Kind: pod.CreateSandbox, Attempt: int(attempt), Why: "the pod has no live sandbox"}
	if r, ok := d.retrying(a); ok {
		d.becauseFailed("", r)
	} else {
		d.because(waiting{text: "the sandbox is being created"})
	}
	if d.do(a) && attempt > 0 {
		d.event(v1.EventTypeNormal, "SandboxChanged", "", "Pod sandbox changed, it will be killed and re-created.")
	}
	return false
}

// clearElsewhere reports whether nothing runs outside the live sandbox, and works
// towards that: a container's successor must not start beside it.
func (d *decider) clearElsewhere() bool {
	free := true
	list := d.instances()
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && c.SandboxID != d.sandbox.ID {
			t := d.termOf(d.in.Now, nil, "its sandbox was replaced")
			d.kill(c, t.by, t.gentle, false, t.why)
			d.because(waiting{container: c.Name, text: "an instance in an older sandbox is being stopped"})
			free = false
		}
	}
	return free
}

// initialize works through the init containers and sidecars and reports whether
// the main containers may start. Init containers run again in a new sandbox. Each
// waits until the one before it has succeeded, or for a sidecar: has started.
func (d *decider) initialize() bool {
	initialized := d.pastInit()
	ready := true
	for i := range d.members {
		m := &d.members[i]
		switch m.Role {
		case member.Sidecar:
			if d.start(m) || !m.Runs() || !m.Started {
				if !initialized {
					return false
				}
				ready = false
			}
		case member.Init:
			if initialized || m.Succeeded() {
				continue
			}
			if !m.Runs() {
				d.start(m)
			} else {
				d.because(waiting{container: m.Spec.Name, text: "init container is running"})
			}
			return false
		}
	}
	// A sidecar that is down doesn't hold up what ran beside it already.
	return ready || initialized
}

// pastInit reports whether a main container was made in this sandbox: then the
// init containers succeeded, even if their remains are gone.
func (d *decider) pastInit() bool {
	for i := range d.members {
		if m := &d.members[i]; m.Role == member.Main && m.Current != nil {
			return true
		}
	}
	return false
}

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
		if t := d.named(m.Target); m.Target != "" && (t == nil || !t.Runs()) {
			d.because(waiting{container: m.Spec.Name, text: "waits for its target container " + m.Target + " to run"})
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
	if kind, ok := d.busy["container/"+name]; ok {
		d.because(waiting{container: name, text: inWords(kind, m.Spec)})
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
				d.because(waiting{container: name, text: "is made anew: the spec asks for another image now"})
				d.do(pod.Action{Kind: pod.RemoveContainer, Container: name, ID: cur.ID, Attempt: cur.Attempt, Why: "the spec asks for another image now"})
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
	d.wakeAt(due)
	d.because(waiting{container: name, text: "back-off before it is started again" + after, next: due,
		advice: "see why it ended: `deckhand logs --previous`"})
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
	d.because(waiting{container: m.Spec.Name, text: "its postStart hook is running"})
	d.do(pod.Action{Kind: pod.PostStart, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt, Why: "it comes before the container counts as started"})
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
	if r, ok := d.waits(a); ok {
		d.wakeAt(r.At)
		d.becauseFailed(m.Spec.Name, r)
		return false
	}
	d.because(waiting{container: m.Spec.Name, text: inWords(a.Kind, m.Spec)})
	return d.do(a)
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
	d.event(v1.EventTypeWarning, "BackOff", name, fmt.Sprintf("Back-off %s restarting failed container %s in pod %s_%s(%s)",
		restart.Delay(inst), name, d.in.Pod.Name, d.in.Pod.Namespace, d.in.Pod.UID))
}
