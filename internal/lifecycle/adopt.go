package lifecycle

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// adoptStatus has a new agent go on from the status that the pod's source knows, if a node has reported one: from its
// transition times and restart counts, and where the node's own checkpoint is lost, from what was started and ready.
func (d *decider) adoptStatus() {
	st := &d.in.Pod.Status
	if d.mem.Status != nil || st.StartTime == nil {
		return
	}
	d.mem.Status = st
	for i := range d.containers {
		m := &d.containers[i]
		s := apistatus.Of(st, m.Spec.Name)
		if s == nil {
			continue
		}
		_, carried := d.checkpoint().Carried[m.Spec.Name]
		switch found := slices.ContainsFunc(d.instances(), func(c pod.Container) bool {
			return s.ContainerID == apistatus.ContainerID(d.in.Node.RuntimeName, c.ID)
		}); {
		case !found && !carried:
			d.mem.Attempts[m.Spec.Name] = max(d.mem.Attempts[m.Spec.Name], apistatus.Attempts(s))
		case found && d.draft.Disk == nil && s.ContainerID == apistatus.ContainerID(d.in.Node.RuntimeName, m.Newest.ID):
			container.AdoptReadiness(m, s, &d.draft)
		}
	}
}

// terminal is the phase in which the pod has ended for good, by its source or by the checkpoint; empty for none. An API
// server's says so of a pod that somebody else has failed, or that an earlier agent reported whose disk is lost.
func (d *decider) terminal() v1.PodPhase {
	return cmp.Or(pod.Terminal(d.in.Pod.Status.Phase), d.checkpoint().Terminal)
}
