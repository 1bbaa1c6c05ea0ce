package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	// defaultGrace is the API's default of terminationGracePeriodSeconds, for pods whose spec is unknown.
	defaultGrace = 30 * time.Second
	// minGrace is what a container gets after its preStop hook used up the grace, or
	// a sidecar whose turn came too late (Pod lifecycle, "Termination of Pods"; KEP-753).
	minGrace = 2 * time.Second
)

// grace is the pod's termination grace: the spec's, or what its containers were made with.
func (d *decider) grace() time.Duration {
	if p := d.in.Pod; p != nil {
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
			return time.Duration(*s) * time.Second
		}
		return defaultGrace
	}
	for _, c := range d.instances() {
		if c.Grace != nil {
			return time.Duration(*c.Grace) * time.Second
		}
	}
	return defaultGrace
}

// term is how containers have to end.
type term struct {
	// by is when they are killed; gentle says that they had a grace at all.
	by     time.Time
	gentle bool
	why    string
}

// termOf is the term of what has to end since at, with an override of the pod's grace.
func (d *decider) termOf(at time.Time, override *time.Duration, why string) term {
	grace := d.grace()
	if override != nil {
		grace = *override
	}
	return term{by: at.Add(grace), gentle: grace > 0, why: why}
}

// stopContainers stops every running instance: init, main and ephemeral containers
// at once, then the sidecars one by one from the last, whose preStop hooks run
// from the beginning (KEP-753). It reports whether nothing runs any more.
func (d *decider) stopContainers(t term) bool {
	none, others, last := true, false, ""
	list := d.instances()
	for i := range list {
		if list[i].State != pod.ContainerRunning {
			continue
		}
		none = false
		if !d.isSidecar(list[i].Name) {
			others = true
		}
	}
	if none {
		return true
	}
	for i := range d.members {
		if m := &d.members[i]; m.Role == member.Sidecar && d.anyRuns(m.Spec.Name) {
			last = m.Spec.Name
		}
	}
	late := !d.in.Now.Before(t.by)
	for i := range list {
		c := &list[i]
		if c.State != pod.ContainerRunning {
			continue
		}
		// Out of time, nobody waits for a turn any more.
		turn := !d.isSidecar(c.Name) || !others && c.Name == last || late
		d.kill(c, t.by, t.gentle, !turn, t.why)
	}
	if others && !late {
		d.wakeAt(t.by)
	}
	return false
}

func (d *decider) isSidecar(name string) bool {
	m := d.named(name)
	return m != nil && m.Role == member.Sidecar
}

func (d *decider) anyRuns(name string) bool {
	for i := range d.instances() {
		if c := &d.instances()[i]; c.Name == name && c.State == pod.ContainerRunning {
			return true
		}
	}
	return false
}

// kill works towards the end of one running instance: its preStop hook, then the
// stop signal, and SIGKILL at by. That time only ever comes nearer. With held only
// the hook is run: its turn to stop hasn't come.
func (d *decider) kill(c *pod.Container, by time.Time, gentle, held bool, why string) {
	k, known := d.mem.Kills[c.ID]
	if !known {
		k = Kill{By: by, Gentle: gentle}
		d.event(v1.EventTypeNormal, "Killing", c.Name, killing(c.Name, why))
	}
	if by.Before(k.By) {
		k.By, k.Gentle = by, gentle
	}
	defer func() { d.mem.Kills[c.ID] = k }()
	target := "instance/" + c.ID
	switch d.busy[target] {
	case pod.PreStop:
		if d.in.Now.Before(k.By) {
			d.wakeAt(k.By)
		} else {
			d.cancel(target)
		}
		return
	case pod.StopContainer:
		if d.in.Now.Add(d.left(c, k)).Before(k.Asked) {
			d.cancel(target) // and asked again with the shorter grace
		}
		return
	}
	if !k.Hooked && d.hasPreStop(c) && d.in.Now.Before(k.By) {
		d.do(pod.Action{Kind: pod.PreStop, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: k.By.Sub(d.in.Now), Why: why})
		d.wakeAt(k.By)
		return
	}
	if held {
		return
	}
	grace := d.left(c, k)
	a := pod.Action{Kind: pod.StopContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: grace, Why: why}
	if r, ok := d.retrying(a); ok {
		d.becauseFailed(c.Name, r)
	}
	if d.do(a) {
		k.Asked = d.in.Now.Add(grace)
	}
}

// left is how long an instance may still take to stop.
func (d *decider) left(c *pod.Container, k Kill) time.Duration {
	grace := max(k.By.Sub(d.in.Now), 0)
	if k.Gentle && (k.Hooked || d.isSidecar(c.Name)) {
		grace = max(grace, minGrace)
	}
	return grace
}

// killing words the event of a container that has to end.
func killing(name, why string) string {
	if why == "" {
		return "Stopping container " + name
	}
	return fmt.Sprintf("Stopping container %s: %s", name, why)
}

// hasPreStop reports whether an instance has a preStop hook: by the spec, or by
// its own record where the spec is gone.
func (d *decider) hasPreStop(c *pod.Container) bool {
	if m := d.named(c.Name); m != nil {
		return m.Probes() && m.Spec.Lifecycle != nil && m.Spec.Lifecycle.PreStop != nil
	}
	return d.in.Pod == nil && c.Made != nil && c.Made.PreStop != nil
}

// stopSandbox reports whether the sandbox is stopped, and works towards that.
func (d *decider) stopSandbox(sb *pod.Sandbox, why string) bool {
	if d.mem.Stopped[sb.ID] {
		return true
	}
	a := pod.Action{Kind: pod.StopSandbox, ID: sb.ID, Why: why}
	d.tellRetry(a)
	d.do(a)
	return false
}

// tellRetry gives the failure of an action that is to be tried again as a reason.
func (d *decider) tellRetry(a pod.Action) {
	if r, ok := d.retrying(a); ok {
		d.becauseFailed("", r)
	}
}
