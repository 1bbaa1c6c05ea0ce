package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// restartAll kills and removes every container except the ephemeral ones, after a container exited with a code that
// requires it (KEP-5532). The sandbox stays. Containers are stopped without preStop hooks or a grace period, then
// removed, so that the pod starts again with its init containers. restartAll reports whether such a restart is under
// way.
func (d *decider) restartAll() bool {
	d.recordRestartAll()
	r := d.checkpoint().RestartAll
	if r == nil {
		return false
	}
	why := fmt.Sprintf("container %s exited with code %d, all containers are restarted", r.Container, r.ExitCode)
	d.clearForRestart(r, why)
	d.plan.AddWait(pod.Wait{Code: pod.WaitRestartAll, Other: r.Container, ExitCode: r.ExitCode})
	return true
}

// forgetRestartAll clears the record of a restart of all containers once every instance that the record lists is
// removed. The record may be left on disk by an earlier agent that couldn't clear it; then all present instances are
// newer than the restart.
func (d *decider) forgetRestartAll() {
	r := d.checkpoint().RestartAll
	if r == nil {
		return
	}
	if len(r.IDs) == 0 {
		d.recordRestart(*r) // an earlier version's record
		r = d.checkpoint().RestartAll
	}
	if !slices.ContainsFunc(d.instances(), func(c pod.Container) bool { return slices.Contains(r.IDs, c.ID) }) {
		d.draft.Change(func(k *pod.Checkpoint) { k.RestartAll = nil })
	}
}

// clearForRestart stops and removes the instances that must not exist when all containers are restarted.
func (d *decider) clearForRestart(r *pod.RestartAll, why string) {
	d.giveUpMaking()
	if !d.durable() || d.killAll(why) {
		return
	}
	if _, making := d.making(); making {
		return
	}
	if d.carry() { // otherwise the removal would lose state that isn't on disk
		d.removeAll(r, why)
	}
}

// recordRestartAll records in the checkpoint the first container that requires a restart of all.
func (d *decider) recordRestartAll() {
	if d.checkpoint().RestartAll != nil {
		return
	}
	for i := range d.containers {
		m := &d.containers[i]
		if m.Current == nil || !m.Current.Ended() || d.onExit(m) != restart.All {
			continue
		}
		d.recordRestart(pod.RestartAll{At: d.in.Now, Container: m.Spec.Name, ExitCode: container.ExitCode(m.Current)})
		d.mem.Initialized, d.mem.Ending, d.terminator.AllBy = "", time.Time{}, time.Time{}
		return
	}
}

// recordRestart records a restart of all containers, with the IDs of the instances that have to be removed for it.
func (d *decider) recordRestart(r pod.RestartAll) {
	for i := range d.instances() {
		if c := &d.instances()[i]; d.goesAtRestart(c) {
			r.IDs = append(r.IDs, c.ID)
		}
	}
	d.draft.Change(func(k *pod.Checkpoint) { k.RestartAll = &r })
}

// killAll stops the running instances, and reports whether there were any.
func (d *decider) killAll(why string) bool {
	any := false
	for i := range d.instances() {
		if c := &d.instances()[i]; c.State == pod.ContainerRunning && d.goesAtRestart(c) {
			any = true
			d.terminator.Stop(c, termination.Term{By: d.in.Now, Why: why})
		}
	}
	return any
}

// removeAll removes the instances that must not exist when all containers are restarted. The container that required
// the restart is removed last: as long as it exists, an agent that lost the checkpoint finds the cause again.
func (d *decider) removeAll(r *pod.RestartAll, why string) {
	var last []*pod.Container
	others := false
	for i := range d.instances() {
		c := &d.instances()[i]
		switch {
		case !d.goesAtRestart(c):
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
}

func (d *decider) removeKeepingLog(c *pod.Container, why string) {
	d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, KeepLog: true,
		Why: why})
}

// goesAtRestart reports whether an instance must be removed before all containers are restarted: it isn't that of an
// ephemeral container.
func (d *decider) goesAtRestart(c *pod.Container) bool {
	m := d.containers.Named(c.Name)
	return m == nil || m.Role != container.Ephemeral
}

// carry records in the checkpoint the state that the next instances continue from: restart counts, back-off and how the
// last instances ended. The back-off stays as it is: this restart isn't delayed and doesn't count for the back-off.
// carry reports whether the record is on disk.
func (d *decider) carry() bool {
	var next map[string]pod.Carried
	for i := range d.containers {
		m := &d.containers[i]
		if m.Role == container.Ephemeral || m.Newest == nil {
			continue
		}
		if c, ok := d.checkpoint().Carried[m.Spec.Name]; ok && c.Attempt >= d.nextAttempt(m) {
			continue
		}
		c := pod.Carried{Attempt: d.nextAttempt(m), Backoff: m.Newest.Backoff}
		if m.Newest.Ended() {
			c.Last = apistatus.Terminated(m.Newest, d.in.Node.RuntimeName)
			c.Backoff = restart.Delay(d.onClock(m.Newest))
		}
		if next == nil {
			next = map[string]pod.Carried{}
		}
		next[m.Spec.Name] = c
	}
	if next != nil {
		d.draft.Change(func(k *pod.Checkpoint) {
			if k.Carried == nil {
				k.Carried = map[string]pod.Carried{}
			}
			maps.Copy(k.Carried, next)
		})
	}
	return d.durable()
}
