package lifecycle

import (
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// noteAbortedStarts moves instances with an aborted start from the observed state to abortedStarts, unless the pod
// is being removed. The rest of the decision doesn't see them, so that they don't count as restarts: they only have to
// be removed from the runtime (clearAbortedStart).
func (d *decider) noteAbortedStarts() {
	o := d.in.Observed
	if o == nil || d.in.Stop != nil ||
		!slices.ContainsFunc(o.Containers, func(c pod.Container) bool { return c.StartAborted }) {
		return
	}
	rest := *o
	rest.Containers = nil
	for _, c := range o.Containers {
		if c.StartAborted {
			d.abortedStarts = append(d.abortedStarts, c)
		} else {
			rest.Containers = append(rest.Containers, c)
		}
	}
	d.in.Observed = &rest
}

// clearAbortedStart requests the removal of a container's instances with an aborted start, and reports whether there
// are any. Until such an instance is removed, it occupies its name in the runtime, so that no new one can be created.
// An instance that couldn't be started because no process could be created for it is removed after the back-off of its
// start.
func (d *decider) clearAbortedStart(name string) bool {
	found := false
	for i := range d.abortedStarts {
		if a := &d.abortedStarts[i]; a.Name == name {
			found = true
			start := pod.Action{Kind: pod.StartContainer, Container: a.Name, ID: a.ID}
			if r, ok := d.plan.Waits(start); ok && r.Failure.Wait == pod.WaitForProcesses {
				d.plan.WakeAt(r.At)
				d.plan.AddRetryWait(name, start)
				continue
			}
			d.plan.AddWait(pod.Wait{Code: pod.WaitAbortedStart, Container: name})
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: a.Name, ID: a.ID, Attempt: a.Attempt,
				Why: "its start was aborted"})
		}
	}
	return found
}
