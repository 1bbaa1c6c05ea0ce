package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/ending"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// restartAll takes down every container but the ephemeral ones after one of them
// ended with a code that asks for that (KEP-5532), keeping the sandbox: killed at once,
// without preStop hooks, then removed, so that the pod begins anew from its init
// containers. It reports whether that is under way.
func (d *decider) restartAll() bool {
	if d.kept().RestartAll == nil && !d.wantsRestartAll() {
		return false
	}
	r := d.kept().RestartAll
	why := fmt.Sprintf("container %s exited with code %d, all containers are started anew", r.Container, r.ExitCode)
	reason := len(d.plan.Reasons)
	d.plan.Because(plan.Wait{Text: why})
	for _, a := range d.plan.InFlight() {
		if a.Kind == pod.EnsureImage || makes(a.Kind) && a.Kind != pod.Keep {
			d.plan.GiveUp(a.Target())
		}
	}
	if d.killAll(why) {
		return true
	}
	for _, a := range d.plan.InFlight() {
		if makes(a.Kind) && a.Kind != pod.Keep {
			return true
		}
	}
	if !d.carry() {
		return true // what isn't on disk would be lost with the containers
	}
	left := false
	for i := range d.instances() {
		c := &d.instances()[i]
		if d.remains(c) {
			left = true
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, KeepLog: true, Why: why})
		}
	}
	if left {
		return true
	}
	d.plan.Reasons = d.plan.Reasons[:reason]
	d.book.Change(func(k *pod.Kept) { k.RestartAll = nil })
	return false
}

// wantsRestartAll looks for a container that asks for it, and remembers that.
func (d *decider) wantsRestartAll() bool {
	for i := range d.members {
		m := &d.members[i]
		if m.Current == nil || !m.Current.Ended() || d.onExit(m) != restart.All {
			continue
		}
		d.book.Change(func(k *pod.Kept) {
			k.RestartAll = &pod.RestartAll{At: d.in.Now, Container: m.Spec.Name, ExitCode: member.ExitCode(m.Current)}
		})
		return true
	}
	return false
}

// killAll kills what runs, and reports whether there was anything.
func (d *decider) killAll(why string) bool {
	any := false
	for i := range d.instances() {
		if c := &d.instances()[i]; c.State == pod.ContainerRunning && d.remains(c) {
			any = true
			d.ender.Stop(c, ending.Term{By: d.in.Now, Why: why})
		}
	}
	return any
}

// remains reports whether an instance has to go before the pod begins anew.
func (d *decider) remains(c *pod.Container) bool {
	m := d.members.Named(c.Name)
	return m == nil || m.Role != member.Ephemeral
}

// carry keeps what the next instances go on from: restart counts, back-off, how the
// last ones ended. It reports whether that is on disk.
func (d *decider) carry() bool {
	var next map[string]pod.Carried
	for i := range d.members {
		m := &d.members[i]
		if m.Role == member.Ephemeral || m.Newest == nil {
			continue
		}
		if _, ok := d.kept().Carried[m.Spec.Name]; ok {
			continue
		}
		c := pod.Carried{Attempt: d.nextAttempt(m)}
		if m.Newest.Ended() {
			c.Last = apistatus.Terminated(m.Newest, d.in.Node.RuntimeName)
			crashed := m.Newest.FinishedAt.Before(d.kept().RestartAll.At) && member.ExitCode(m.Newest) != 0
			if crashed || m.Spec.Name == d.kept().RestartAll.Container {
				// It ended by itself, and not well: the next one waits as after any crash.
				c.Backoff, c.NotBefore = restart.Next(m.Newest, d.in.Node.MaxBackoff), restart.Due(m.Newest, d.in.Now)
			}
		}
		if next == nil {
			next = map[string]pod.Carried{}
		}
		next[m.Spec.Name] = c
	}
	if next != nil {
		d.book.Change(func(k *pod.Kept) {
			if k.Carried == nil {
				k.Carried = map[string]pod.Carried{}
			}
			for name, c := range next {
				k.Carried[name] = c
			}
		})
	}
	return d.book.Saved()
}

// allRestarting words the condition while all containers are taken down.
func (d *decider) allRestarting() (message string, since time.Time, on bool) {
	r := d.kept().RestartAll
	if r == nil {
		return "", time.Time{}, false
	}
	return fmt.Sprintf("Container %s exited with code %d, triggering pod restart", r.Container, r.ExitCode), r.At, true
}

// gateOpen reports whether a pod's readiness gate is met (KEP-580).
func gateOpen(p *v1.Pod, typ v1.PodConditionType) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == typ {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
