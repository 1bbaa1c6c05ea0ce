package lifecycle

import "github.com/deckhand-node/deckhand/internal/pod"

// keepInstances is how many instances of a container stay in the runtime: the
// newest, and its predecessor for `logs --previous` and lastState.
const keepInstances = 2

// tidy removes what a living pod no longer needs: older instances, and sandboxes
// that hold none of those kept.
func (d *decider) tidy() {
	seen := map[string]int{}
	list := d.instances()
	for i := range list {
		c := &list[i]
		seen[c.Name]++
		switch {
		case seen[c.Name] <= keepInstances:
		case c.State == pod.ContainerRunning:
			d.ender.Stop(c, d.ender.Term(d.in.Now, nil, "a newer instance has taken its place"))
		default:
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Why: "only the last two instances are kept"})
		}
	}
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
	seen := map[string]int{}
	inUse := map[string]bool{}
	for i := range d.instances() {
		c := &d.instances()[i]
		seen[c.Name]++
		if seen[c.Name] <= keepInstances || c.State == pod.ContainerRunning {
			inUse[c.SandboxID] = true
		}
	}
	for _, a := range d.plan.InFlight() {
		if a.Kind == pod.CreateContainer {
			inUse[a.SandboxID] = true
		}
	}
	return inUse
}
