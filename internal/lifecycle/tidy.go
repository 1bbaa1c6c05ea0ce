package lifecycle

import "github.com/deckhand-node/deckhand/internal/pod"

// keepInstances is how many instances of a container stay in the runtime: the
// newest, and its predecessor for `logs --previous` and lastState.
const keepInstances = 2

// tidy removes what a living pod no longer needs: older instances, and sandboxes
// that hold none of those kept.
func (d *decider) tidy() {
	seen := map[string]int{}
	inUse := map[string]bool{}
	list := d.instances()
	for i := range list {
		c := &list[i]
		seen[c.Name]++
		if seen[c.Name] <= keepInstances {
			inUse[c.SandboxID] = true
			continue
		}
		switch {
		case c.State == pod.ContainerRunning:
			inUse[c.SandboxID] = true
			t := d.ender.Term(d.in.Now, nil, "a newer instance has taken its place")
			d.ender.Stop(c, t)
		default:
			d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Why: "only the last two instances are kept"})
		}
	}
	boxes := d.sandboxes()
	for i := 1; i < len(boxes); i++ {
		if inUse[boxes[i].ID] && boxes[i].State == pod.SandboxNotReady {
			continue
		}
		if d.stopSandbox(&boxes[i], "a newer sandbox has taken its place") && !inUse[boxes[i].ID] {
			d.plan.Do(pod.Action{Kind: pod.RemoveSandbox, ID: boxes[i].ID, Why: "a newer sandbox has taken its place"})
		}
	}
}
