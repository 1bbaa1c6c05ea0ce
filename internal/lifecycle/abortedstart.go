package lifecycle

import (
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// abortedStart reports whether an instance never ran because the agent died, or the connection broke, during its
// start: containerd then ends it with this reason and message. The container didn't fail, so this doesn't count as a
// restart.
func abortedStart(c *pod.Container) bool {
	return c.State == pod.ContainerExited && c.StartedAt.IsZero() && c.Reason == pod.ReasonStartError &&
		strings.Contains(c.Message, "context canceled")
}

// noteAbortedStarts removes instances with an aborted start from the observed state, unless the pod is being removed:
// they matter only until they are removed.
func (d *decider) noteAbortedStarts() {
	o := d.in.Observed
	if o == nil || d.in.Stop != nil ||
		!slices.ContainsFunc(o.Containers, func(c pod.Container) bool { return abortedStart(&c) }) {
		return
	}
	rest := *o
	rest.Containers = nil
	for _, c := range o.Containers {
		if abortedStart(&c) {
			d.abortedStarts = append(d.abortedStarts, c)
		} else {
			rest.Containers = append(rest.Containers, c)
		}
	}
	d.in.Observed = &rest
}

// clearAbortedStart removes a container's instances with an aborted start. It reports whether there are any: until
// they are removed, they occupy their name in the runtime.
func (d *decider) clearAbortedStart(name string) bool {
	found := false
	for i := range d.abortedStarts {
		if a := &d.abortedStarts[i]; a.Name == name {
			found = true
			d.plan.AddWait(pod.Wait{Code: pod.WaitAbortedStart, Container: name})
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: a.Name, ID: a.ID, Attempt: a.Attempt,
				Why: "its start was aborted"})
		}
	}
	return found
}
