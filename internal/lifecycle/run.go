package lifecycle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
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
	if !d.identified() {
		return
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
	if k := d.kept(); k.Terminal == "" && k.RestartAll == nil && k.Ending == nil && d.in.Pod != nil {
		if phase := d.outcome(); phase != "" {
			d.book.Change(func(k *pod.Kept) { k.Terminal = phase })
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
			if ended && member.ExitCode(m.Newest) != 0 && !d.again(m) && !d.pastInit() {
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
			d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: "runs, but isn't ready: " + m.NotReady,
				Advice: "see what it says: `deckhand logs`"})
		case m.Role == member.Main && m.Newest != nil && m.Newest.Ended() && !d.again(m):
			d.plan.Because(plan.Wait{Container: m.Spec.Name,
				Text: fmt.Sprintf("has ended with code %d and isn't started again; the others run on", member.ExitCode(m.Newest))})
		}
	}
	for _, g := range d.in.Pod.Spec.ReadinessGates {
		if status, _ := apistatus.Gate(d.in.Pod, g.ConditionType); status != v1.ConditionTrue {
			d.plan.Because(plan.Wait{Text: fmt.Sprintf("waits for its readiness gate %s", g.ConditionType)})
		}
	}
}

// identified reports whether it is on disk which pod of its UID this is, where the
// manifest gives the UID. Until then nothing is made that might be taken for
// another one's after a restart of the agent.
func (d *decider) identified() bool {
	if d.kept().Base != d.in.Base {
		d.book.Change(func(k *pod.Kept) { k.Base = d.in.Base })
	}
	if d.in.Base == "" || d.book.Disk != nil && d.book.Disk.Base == d.in.Base {
		return true
	}
	d.plan.Because(plan.Wait{Text: "is being written down"})
	return false
}

func (d *decider) prepare(up bool) {
	a := pod.Action{Kind: pod.PreparePod, PodResources: d.resizing.AtFirst(), Why: "folders, cgroup and volumes come before the sandbox"}
	if r, ok := d.plan.Retrying(a); ok {
		d.plan.BecauseFailed("", r)
	} else if !up {
		d.plan.Because(plan.Wait{Text: "folders, cgroup and volumes are being prepared"})
	}
	if d.plan.Do(a) {
		d.mem.Overhead = d.in.Pod.Spec.Overhead
	}
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
		if !d.ender.StopAll(d.ender.Term(d.in.Now, nil, "its sandbox is gone")) {
			d.plan.Because(plan.Wait{Text: "its sandbox is gone, what is left in it is being stopped"})
			return false
		}
		for i := range d.sandboxes() {
			if !d.stopSandbox(&d.sandboxes()[i], "the sandbox is not ready") {
				d.plan.Because(plan.Wait{Text: "the old sandbox is being taken down"})
				return false
			}
		}
	}
	d.tidySandboxes()
	if due := d.sandboxDue(); d.in.Now.Before(due) {
		d.plan.WakeAt(due)
		d.plan.Because(plan.Wait{Text: "its sandbox ended soon after it was made; a wait before the next one", Next: due,
			Advice: "check the runtime and its network: the runtime's log says why sandboxes end"})
		return false
	}
	a := pod.Action{Kind: pod.CreateSandbox, Attempt: int(attempt), Why: "the pod has no live sandbox"}
	if r, ok := d.plan.Retrying(a); ok {
		d.plan.BecauseFailed("", r)
	} else {
		d.plan.Because(plan.Wait{Text: "the sandbox is being created"})
	}
	if d.plan.Do(a) && attempt > 0 {
		d.plan.Event(v1.EventTypeNormal, "SandboxChanged", "", "Pod sandbox changed, it will be killed and re-created.")
	}
	return false
}

// shortLived is how soon after its making a sandbox's end counts as a failure.
const shortLived = 30 * time.Second

// sandboxDue is when the next sandbox may be made: at once, unless the last one was
// made just before.
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

// clearElsewhere reports whether nothing runs outside the live sandbox, and works
// towards that: a container's successor must not start beside it.
func (d *decider) clearElsewhere() bool {
	free := true
	list := d.instances()
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && c.SandboxID != d.sandbox.ID {
			d.ender.Stop(c, d.ender.Term(d.in.Now, nil, "its sandbox was replaced"))
			d.plan.Because(plan.Wait{Container: c.Name, Text: "an instance in an older sandbox is being stopped"})
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
				d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: "init container is running"})
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
