package lifecycle

import (
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// cutOff reports whether an instance never ran because the agent died, or the
// connection broke, while it was being started: containerd then ends it with
// this reason and message. Its container didn't fail, so this is no restart.
func cutOff(c *pod.Container) bool {
	return c.State == pod.ContainerExited && c.StartedAt.IsZero() && c.Reason == "StartError" &&
		strings.Contains(c.Message, "context canceled")
}

// setAside takes the cut-off instances out of what is observed, for a pod that
// goes on: nothing but their removal depends on them.
func (d *decider) setAside() {
	o := d.in.Observed
	if o == nil || d.in.Stop != nil || !slices.ContainsFunc(o.Containers, func(c pod.Container) bool { return cutOff(&c) }) {
		return
	}
	rest := *o
	rest.Containers = nil
	for _, c := range o.Containers {
		if cutOff(&c) {
			d.aside = append(d.aside, c)
		} else {
			rest.Containers = append(rest.Containers, c)
		}
	}
	d.in.Observed = &rest
}

// clearAside removes the cut-off instances of a container. It reports whether
// that is still to be waited for: until then the runtime holds their name.
func (d *decider) clearAside(name string) bool {
	waits := false
	for i := range d.aside {
		if a := &d.aside[i]; a.Name == name {
			waits = true
			d.plan.Because(plan.Wait{Container: name, Text: "its start was cut off, it is made anew"})
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: a.Name, ID: a.ID, Attempt: a.Attempt, Why: "its start was cut off"})
		}
	}
	return waits
}
