package lifecycle

import (
	"fmt"

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
		return d.closingRestartAll()
	}
	r := d.kept().RestartAll
	why := fmt.Sprintf("container %s exited with code %d, all containers are started anew", r.Container, r.ExitCode)
	if !d.begunAnew(r, why) {
		d.plan.Because(plan.Wait{Text: why})
		return true
	}
	d.book.Change(func(k *pod.Kept) { k.RestartAll = nil })
	return d.closingRestartAll()
}

// closingRestartAll reports whether it is yet to be written down that all containers
// are gone: the next agent would remove the new ones again.
func (d *decider) closingRestartAll() bool {
	if disk := d.book.Disk; disk == nil || disk.RestartAll == nil || d.durable() {
		return false
	}
	d.plan.Because(plan.Wait{Text: "begins anew; that is being written down"})
	return true
}

// begunAnew reports whether all containers that have to go are gone, and works
// towards that.
func (d *decider) begunAnew(r *pod.RestartAll, why string) bool {
	d.giveUpMaking()
	if !d.durable() || d.killAll(why) {
		return false
	}
	if _, making := d.making(); making {
		return false
	}
	// What isn't on disk would be lost with the containers.
	return d.carry() && !d.removeAll(r, why)
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

// removeAll removes what has to go, and reports whether there was anything. The
// container that asked for all this goes last: while it is there, an agent that knows
// of nothing finds out again.
func (d *decider) removeAll(r *pod.RestartAll, why string) bool {
	var last []*pod.Container
	others := false
	for i := range d.instances() {
		c := &d.instances()[i]
		switch {
		case !d.remains(c):
		case c.Name == r.Container:
			last = append(last, c)
		default:
			others = true
			d.removeKeepingLog(c, why)
		}
	}
	if !others {
		for _, c := range last {
			d.removeKeepingLog(c, why)
		}
	}
	return others || len(last) > 0
}

func (d *decider) removeKeepingLog(c *pod.Container, why string) {
	d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, KeepLog: true, Why: why})
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
		if c, ok := d.kept().Carried[m.Spec.Name]; ok && c.Attempt >= d.nextAttempt(m) {
			continue
		}
		c := pod.Carried{Attempt: d.nextAttempt(m), Backoff: m.Newest.Backoff}
		if m.Newest.Ended() {
			c.Last, c.Backoff = apistatus.Terminated(m.Newest, d.in.Node.RuntimeName), restart.Delay(m.Newest)
			r := d.kept().RestartAll
			if m.Spec.Name == r.Container || m.Newest.FinishedAt.Before(r.At) && member.ExitCode(m.Newest) != 0 {
				// It ended by itself, and not well: the next one waits as after any crash.
				c.Backoff, c.Delay = restart.Next(m.Newest, d.in.Node.FirstBackoff, d.in.Node.MaxBackoff), restart.Delay(m.Newest)
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
	return d.durable()
}

// allRestarting words the condition while all containers are taken down; empty if they aren't.
func (d *decider) allRestarting() string {
	r := d.kept().RestartAll
	if r == nil {
		return ""
	}
	return fmt.Sprintf("Container %s exited with code %d, triggering pod restart", r.Container, r.ExitCode)
}
