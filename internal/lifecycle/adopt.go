package lifecycle

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// adoptStatus makes a new agent continue from the status in the pod's source, if a node has reported one: its
// transition times and restart counts, and if the node's checkpoint is lost, also which containers were started and
// ready.
func (d *decider) adoptStatus() {
	st := &d.in.Pod.Status
	if d.mem.Status != nil || st.StartTime == nil {
		return
	}
	d.mem.Status = st
	for i := range d.containers {
		m := &d.containers[i]
		s := pod.StatusNamed(st, m.Spec.Name)
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

// terminal is the phase in which the pod has ended for good, according to its source or the checkpoint; empty if it
// hasn't ended. An API server may report the end when the checkpoint doesn't: another client has marked the pod as
// ended, or an earlier agent reported the end and then lost its disk.
func (d *decider) terminal() v1.PodPhase {
	return cmp.Or(pod.Terminal(d.in.Pod.Status.Phase), d.checkpoint().Terminal)
}
