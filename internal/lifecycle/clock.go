package lifecycle

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// clockPrecision is the precision of times after a step of the clock: during a replay the clocks differ from those of
// the recording, and the rounding hides the difference.
const clockPrecision = time.Millisecond

// followClock converts the times in the memory and the checkpoint to the present wall clock if that was set since the
// last decision. Times with a monotonic reading stay the same moment, but get a new wall-clock reading: only that is
// saved for the next agent.
func (d *decider) followClock() {
	steps, by := d.in.Node.ClockSteps, time.Duration(0)
	for i := len(steps) - 1; i >= 0 && !steps[i].Equal(d.mem.ClockStep); i-- {
		by += steps[i].By
	}
	if len(steps) == 0 || steps[len(steps)-1].Equal(d.mem.ClockStep) {
		return
	}
	d.mem.ClockStep = steps[len(steps)-1]
	move := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		if t == t.Round(0) { // no monotonic reading
			t = t.Add(by)
		}
		return d.in.Now.Add(t.Sub(d.in.Now).Round(clockPrecision))
	}
	d.mem.Started, d.mem.Ending, d.mem.AllBy = move(d.mem.Started), move(d.mem.Ending), move(d.mem.AllBy)
	for id, at := range d.mem.Ended {
		d.mem.Ended[id] = move(at)
	}
	for id, k := range d.mem.Kills {
		k.By, k.Asked = move(k.By), move(k.Asked)
		d.mem.Kills[id] = k
	}
	for key, r := range d.mem.Retries {
		r.Failed, r.At = move(r.Failed), move(r.At)
		d.mem.Retries[key] = r
	}
	k := d.checkpoint()
	if over := k.Terminal != "" && !d.anyRuns(); !over && (!k.EndBy.IsZero() || k.Termination != nil) {
		d.draft.Change(func(k *pod.Checkpoint) {
			k.EndBy = move(k.EndBy)
			if k.Termination != nil {
				t := *k.Termination
				t.At = move(t.At)
				k.Termination = &t
			}
		})
	}
}

// deadlineFrom returns the time from which the pod's activeDeadlineSeconds count, on the present wall clock.
func (d *decider) deadlineFrom() time.Time {
	if from := d.checkpoint().DeadlineFrom; !from.IsZero() {
		return from
	}
	return d.dated(d.started)
}

// keepDeadline records the start of a pod with a deadline in the checkpoint if the clock was set after the start.
// Without the record, the next agent would take the old reading of the clock for another moment.
func (d *decider) keepDeadline() {
	from := d.checkpoint().DeadlineFrom
	if from.IsZero() {
		from = d.started
	}
	if d.mem.Started.Round(0).Sub(from.Round(0)).Abs() >= time.Second {
		d.draft.Change(func(k *pod.Checkpoint) { k.DeadlineFrom = d.mem.Started })
	}
}

// noteEnds records the end of each container's newest instance when the end is first seen: after a later step of the
// clock, the reported time may be ambiguous. An end that lies in the future isn't recorded: the clock was set back
// while no agent ran.
func (d *decider) noteEnds() {
	for i := range d.containers {
		m := d.containers[i].Newest
		if m == nil || !m.Ended() || m.FinishedAt.IsZero() {
			continue
		}
		if _, known := d.mem.Ended[m.ID]; known {
			continue
		}
		if at := d.dated(m.FinishedAt); restart.Past(at, d.in.Now) {
			d.mem.Ended[m.ID] = pod.Anchored(at, d.in.Now)
		}
	}
}

// onClock returns an instance with its start and end converted to the present wall clock.
func (d *decider) onClock(inst *pod.Container) *pod.Container {
	if len(d.in.Node.ClockSteps) == 0 {
		return inst
	}
	c := *inst
	c.StartedAt, c.FinishedAt = d.dated(c.StartedAt), d.dated(c.FinishedAt)
	return &c
}

// dated converts a stored time to the present wall clock.
func (d *decider) dated(t time.Time) time.Time { return pod.OnClock(t, d.in.Now, d.in.Node.ClockSteps) }
