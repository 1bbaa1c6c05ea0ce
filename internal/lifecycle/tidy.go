package lifecycle

import (
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// instancesKept calls yield for each instance with why it isn't kept, empty for one that is.
// The newest of each container always is.
func (d *decider) instancesKept(yield func(c *pod.Container, why string)) {
	keep := d.in.Node.Dead
	if keep == nil {
		keep = &Dead{PerContainer: 1}
	}
	seen := map[string]int{}
	list := d.instances()
	for i := range list {
		c := &list[i]
		seen[c.Name]++
		due := c.FinishedAt.Add(keep.MinAge)
		switch {
		case seen[c.Name] == 1:
			yield(c, "")
		case c.Ended() && slices.Contains(d.in.Surplus, c.ID):
			yield(c, "the node keeps no more containers that have ended")
		case keep.PerContainer < 0 || seen[c.Name] <= 1+keep.PerContainer:
			yield(c, "")
		case c.Ended() && keep.MinAge > 0 && d.in.Now.Before(due):
			d.plan.WakeAt(due)
			yield(c, "")
		default:
			yield(c, "a newer instance has taken its place")
		}
	}
}

// tidy removes what a living pod no longer needs: older instances, and sandboxes
// that hold none of those kept.
func (d *decider) tidy() {
	d.instancesKept(func(c *pod.Container, why string) {
		switch {
		case why == "":
		case c.State == pod.ContainerRunning:
			d.ender.Stop(c, d.ender.Term(d.in.Now, nil, why))
		default:
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Why: why})
		}
	})
	d.tidySandboxes()
}

// tidySandboxes removes all sandboxes but the newest that hold nothing that is kept.
func (d *decider) tidySandboxes() {
	const why = "a newer sandbox has taken its place"
	boxes := d.sandboxes()
	if len(boxes) < 2 {
		return
	}
	inUse := d.sandboxesInUse()
	for i := 1; i < len(boxes); i++ {
		if inUse[boxes[i].ID] && boxes[i].State == pod.SandboxNotReady {
			continue
		}
		if d.stopSandbox(&boxes[i], why) && !inUse[boxes[i].ID] {
			d.plan.Do(pod.Action{Kind: pod.RemoveSandbox, ID: boxes[i].ID, Why: why})
		}
	}
}

// sandboxesInUse are those that hold instances that are kept or run, or get one now.
func (d *decider) sandboxesInUse() map[string]bool {
	inUse := map[string]bool{}
	d.instancesKept(func(c *pod.Container, why string) {
		if why == "" || c.State == pod.ContainerRunning {
			inUse[c.SandboxID] = true
		}
	})
	for _, a := range d.plan.InFlight() {
		if a.Kind == pod.CreateContainer {
			inUse[a.SandboxID] = true
		}
	}
	return inUse
}
