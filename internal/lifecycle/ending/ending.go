// Package ending ends containers: their preStop hooks, stop signals and the time
// by which they are killed, in the order that Kubernetes documents (Pod lifecycle,
// "Termination of Pods"; KEP-753 for sidecars).
package ending

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Kill is what is known of the ending of one instance.
type Kill struct {
	// By is when it is killed if it hasn't ended before. It only ever comes nearer.
	By time.Time
	// Asked is the time by which a StopContainer under way would kill it; zero if none is.
	Asked time.Time
	// Hooked says that its preStop hook has run, or was given up.
	Hooked bool
	// Begun says that it was asked to stop: from then on it waits for no turn.
	Begun bool
	// Gentle says that it had a grace at all: then it gets at least minGrace after
	// its hook or its turn.
	Gentle bool
	// Why is what it was first asked to end for.
	Why string
}

// Ender ends the containers of one pod, as part of one decision.
type Ender struct {
	Plan *plan.Plan
	// Kills holds, by instance ID, what is known of the ending of those that have to
	// end; Ender changes it.
	Kills map[string]Kill
	// Pod is nil for one whose spec is gone; then Members is empty.
	Pod     *v1.Pod
	Members member.List
	// Instances are all that the runtime has of the pod.
	Instances []pod.Container
}

// Landed takes in the end of an effort to end an instance, however it went.
func (e *Ender) Landed(r pod.Result) {
	k, ok := e.Kills[r.Action.ID]
	if !ok {
		return
	}
	switch r.Action.Kind {
	case pod.PreStop:
		k.Hooked = true
		if r.Cancelled {
			e.Plan.Event(v1.EventTypeWarning, "FailedPreStopHook", r.Action.Container, "PreStopHook failed: it ran past the grace period")
		}
	case pod.StopContainer:
		k.Asked = time.Time{}
	}
	e.Kills[r.Action.ID] = k
}

// Last is when the last of what has to end is killed; zero if that is due.
func (e *Ender) Last() (at time.Time) {
	for _, k := range e.Kills {
		if k.By.After(at) && k.By.After(e.Plan.Now) {
			at = k.By
		}
	}
	return at
}

const (
	// defaultGrace is the API's default of terminationGracePeriodSeconds, for pods whose spec is unknown.
	defaultGrace = 30 * time.Second
	// minGrace is what a container gets after its preStop hook used up the grace, or
	// a sidecar whose turn came too late (Pod lifecycle, "Termination of Pods"; KEP-753).
	minGrace = 2 * time.Second
	// precision is that of what is asked of others; the CRI knows whole seconds.
	precision = time.Millisecond
)

// Grace is the pod's termination grace: the spec's, or what its containers were made with.
func (e *Ender) Grace() time.Duration {
	if p := e.Pod; p != nil {
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
			return time.Duration(*s) * time.Second
		}
		return defaultGrace
	}
	for _, c := range e.Instances {
		if c.Grace != nil {
			return time.Duration(*c.Grace) * time.Second
		}
	}
	return defaultGrace
}

// Term is how containers have to end.
type Term struct {
	// By is when they are killed; Gentle says that they had a grace at all.
	By     time.Time
	Gentle bool
	// Why is told to people.
	Why string
	// Told is the message of the event Killing; by default it is made from Why.
	Told string
}

// Term is that of what has to end since at, with an override of the pod's grace.
func (e *Ender) Term(at time.Time, override *time.Duration, why string) Term {
	grace := e.Grace()
	if override != nil {
		grace = *override
	}
	return Term{By: at.Add(grace), Gentle: grace > 0, Why: why}
}

// StopAll stops every running instance: init, main and ephemeral containers
// at once, then the sidecars one by one from the last, whose preStop hooks run
// from the beginning (KEP-753). It reports whether nothing runs any more.
func (e *Ender) StopAll(t Term) bool {
	none, others, last := true, false, ""
	list := e.Instances
	for i := range list {
		if list[i].State != pod.ContainerRunning {
			continue
		}
		none = false
		if !e.isSidecar(list[i].Name) {
			others = true
		}
	}
	if none {
		return true
	}
	for i := range e.Members {
		if m := &e.Members[i]; m.Role == member.Sidecar && e.anyRuns(m.Spec.Name) {
			last = m.Spec.Name
		}
	}
	late := !e.Plan.Now.Before(t.By)
	for i := range list {
		c := &list[i]
		if c.State != pod.ContainerRunning {
			continue
		}
		// Out of time, nobody waits for a turn any more.
		turn := !e.isSidecar(c.Name) || !others && c.Name == last || late
		e.kill(c, t, !turn)
	}
	if !late {
		e.Plan.WakeAt(t.By) // then nobody waits for a turn any more
	}
	return false
}

func (e *Ender) isSidecar(name string) bool {
	m := e.Members.Named(name)
	return m != nil && m.Role == member.Sidecar
}

func (e *Ender) anyRuns(name string) bool {
	for i := range e.Instances {
		if c := &e.Instances[i]; c.Name == name && c.State == pod.ContainerRunning {
			return true
		}
	}
	return false
}

// Stop works towards the end of one running instance.
func (e *Ender) Stop(c *pod.Container, t Term) { e.kill(c, t, false) }

// kill works towards the end of one running instance: its preStop hook, then the
// stop signal, and SIGKILL at the term's end. That only ever comes nearer. With held
// only the hook is run: its turn to stop hasn't come.
func (e *Ender) kill(c *pod.Container, t Term, held bool) {
	k, known := e.Kills[c.ID]
	if !known {
		k = Kill{By: t.By, Gentle: t.Gentle, Why: t.Why}
		e.Plan.Event(v1.EventTypeNormal, "Killing", c.Name, t.told(c.Name))
	}
	if t.By.Before(k.By) {
		k.By, k.Gentle = t.By, t.Gentle
	}
	defer func() { e.Kills[c.ID] = k }()
	target := "instance/" + c.ID
	switch kind, _ := e.Plan.Busy(target); kind {
	case pod.PreStop:
		if e.Plan.Now.Before(k.By) {
			e.Plan.WakeAt(k.By)
		} else {
			e.Plan.GiveUp(target)
		}
		return
	case pod.StopContainer:
		if e.end(c, k).Before(k.Asked) {
			e.Plan.GiveUp(target) // and asked again with the shorter grace
		}
		return
	}
	if !k.Hooked && e.hasPreStop(c) && e.Plan.Now.Before(k.By) {
		e.Plan.Do(pod.Action{Kind: pod.PreStop, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: max(e.until(k.By), precision), Why: t.Why})
		e.Plan.WakeAt(k.By)
		return
	}
	if held && !k.Begun {
		return
	}
	end := e.end(c, k)
	a := pod.Action{Kind: pod.StopContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: e.until(end), Why: t.Why}
	e.Plan.BecauseRetried(c.Name, a)
	if e.Plan.Do(a) {
		k.Asked, k.Begun = end, true
	}
}

// end is when an instance is killed that is asked to stop now.
func (e *Ender) end(c *pod.Container, k Kill) time.Time {
	least := e.Plan.Now
	if k.Gentle && (k.Hooked || e.isSidecar(c.Name)) {
		least = least.Add(minGrace)
	}
	if k.By.Before(least) {
		return least
	}
	return k.By
}

// until is how long it is until then. Clocks of one machine differ by less than what it is rounded to, so that
// a replay, which goes by another one, comes to the same.
func (e *Ender) until(at time.Time) time.Duration { return at.Sub(e.Plan.Now).Round(precision) }

// told words the event Killing.
func (t Term) told(name string) string {
	switch {
	case t.Told != "":
		return t.Told
	case t.Why == "":
		return "Stopping container " + name
	default:
		return fmt.Sprintf("Stopping container %s: %s", name, t.Why)
	}
}

// hasPreStop reports whether an instance has a preStop hook: by the spec, or by
// its own record where the spec is gone.
func (e *Ender) hasPreStop(c *pod.Container) bool {
	if m := e.Members.Named(c.Name); m != nil {
		return m.LongRunning() && m.Spec.Lifecycle != nil && m.Spec.Lifecycle.PreStop != nil
	}
	return e.Pod == nil && c.Made != nil && c.Made.PreStop != nil
}
