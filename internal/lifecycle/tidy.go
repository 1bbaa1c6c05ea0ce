package lifecycle

import (
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// retention says whether an instance is kept.
type retention struct {
	// why is the reason for the removal; empty if the instance is kept.
	why string
	// until is when an instance that is kept only for its age is checked again.
	until time.Time
}

// eachInstance calls yield for each instance with its retention. The newest of each container is always kept.
func (d *decider) eachInstance(yield func(c *pod.Container, r retention)) {
	gc := d.in.Node.ContainerGC
	if gc == nil {
		gc = &ContainerGC{PerContainer: 1}
	}
	seen := map[string]int{}
	list := d.instances()
	for i := range list {
		c := &list[i]
		seen[c.Name]++
		switch {
		case seen[c.Name] == 1 && d.expendable(*c) && d.draft.Disk != nil && d.draft.Disk.Final != nil:
			yield(c, retention{why: "the pod has ended, and the node is short of disk space"})
		case seen[c.Name] == 1:
			yield(c, retention{})
		case c.Ended() && slices.Contains(d.in.ExcessContainers, c.ID):
			yield(c, retention{why: "the node keeps no more containers that have ended"})
		case gc.PerContainer < 0 || seen[c.Name] <= 1+gc.PerContainer:
			yield(c, retention{})
		case c.Ended() && gc.MinAge > 0 && d.in.Now.Before(d.ended(c).Add(gc.MinAge)):
			yield(c, retention{until: d.ended(c).Add(gc.MinAge)})
		default:
			yield(c, retention{why: "a newer instance has taken its place"})
		}
	}
}

// ended is the time at which an instance ended that is kept only for its age. An end in the future counts as now: the
// clock was set back before the agent saw the end.
func (d *decider) ended(c *pod.Container) time.Time {
	at, known := d.mem.Ended[c.ID]
	if !known {
		at = pod.AnchoredPast(d.dated(c.FinishedAt), d.in.Now)
		d.mem.Ended[c.ID] = at
	}
	return at
}

// expendable reports whether an instance is to be removed although no newer one has taken its place: the pod has ended,
// and the node has listed the instance for removal.
func (d *decider) expendable(c pod.Container) bool {
	return d.finished && c.Ended() && slices.Contains(d.in.ExcessContainers, c.ID)
}

// removals limits how many of a pod's instances are removed at once: a pod may have thousands of them.
const removals = 10

// tidy removes instances that a running pod no longer needs, and sandboxes without instances that are kept.
func (d *decider) tidy() {
	free := removals
	for _, a := range d.plan.InFlight() {
		if a.Kind == pod.RemoveContainer {
			free--
		}
	}
	d.eachInstance(func(c *pod.Container, r retention) {
		switch {
		case !r.until.IsZero():
			d.plan.WakeAt(r.until)
		case r.why == "":
		case c.State == pod.ContainerRunning:
			d.terminator.Stop(c, d.terminator.Term(d.in.Now, nil, r.why))
		case free > 0:
			if d.plan.Do(pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt,
				Why: r.why}) {
				free--
			}
		}
	})
	d.tidySandboxes()
}

// tidySandboxes removes all sandboxes but the newest one, unless they hold instances that are kept.
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

// sandboxesInUse are the sandboxes with instances that are kept, run or are being created.
func (d *decider) sandboxesInUse() map[string]bool {
	inUse := map[string]bool{}
	d.eachInstance(func(c *pod.Container, r retention) {
		if r.why == "" || c.State == pod.ContainerRunning {
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
