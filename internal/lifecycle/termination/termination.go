// Package termination stops containers: preStop hooks, stop signals and the times of SIGKILL, in the order that
// Kubernetes documents (Pod lifecycle, "Termination of Pods"; KEP-753 for sidecars).
package termination

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Kill is the termination of one instance.
type Kill struct {
	// By is when the instance is killed if it hasn't ended before. It only moves to earlier times.
	By time.Time
	// Asked is the time at which the present StopContainer action would kill the instance; zero if no such action is
	// under way.
	Asked time.Time
	// PreStopDone says that the preStop hook has run, or isn't waited for any more.
	PreStopDone bool
	// Begun says that a stop of the instance was requested: after that, the instance doesn't wait for its turn any
	// more.
	Begun bool
	// Why is the reason for the stop; the first reason if there are several.
	Why string
}

// Terminator stops the containers of one pod, as part of one decision.
type Terminator struct {
	Plan *plan.Plan
	// Kills holds, by instance ID, the terminations of instances that have to stop; Terminator changes it.
	Kills map[string]Kill
	// Pod is nil if the spec is gone; then Containers is empty.
	Pod        *v1.Pod
	Containers container.List
	// Instances are all instances of the pod in the runtime.
	Instances []pod.Container
	// AllBy is when StopAll kills the instances. It is set by the first call of StopAll, only moves to earlier times,
	// and is zero while StopAll stops nothing. Terminator changes it.
	AllBy time.Time
}

// CollectResult applies the result of an action on an instance. Only results of PreStop and StopContainer have an
// effect.
func (e *Terminator) CollectResult(r pod.Result) {
	k, ok := e.Kills[r.Action.ID]
	if !ok {
		return
	}
	switch r.Action.Kind {
	case pod.PreStop:
		if r.Failure != nil && r.Failure.Wait != "" && !r.Cancelled && !k.PreStopDone {
			return // the hook couldn't begin and will be retried
		}
		if r.Failure != nil && !r.Cancelled && !k.PreStopDone {
			e.Plan.RecordPreStopFailed(r.Action.Container, r.Failure.Message)
		}
		k.PreStopDone = true
	case pod.StopContainer:
		k.Asked = time.Time{}
	}
	e.Kills[r.Action.ID] = k
}

// Last is when the last of the stopping instances is killed; zero if all those times have passed.
func (e *Terminator) Last() (at time.Time) {
	for _, k := range e.Kills {
		if k.By.After(at) && k.By.After(e.Plan.Now) {
			at = k.By
		}
	}
	return at
}

// MinGrace is the minimum time between a container's stop signal and SIGKILL. It applies when the preStop hook used
// up the grace period, when a sidecar's turn came too late (Pod lifecycle, "Termination of Pods"; KEP-753), and when
// the grace period is shorter.
const MinGrace = 2 * time.Second

const (
	// defaultGrace is the API's default of terminationGracePeriodSeconds, for pods without a spec.
	defaultGrace = 30 * time.Second
	// precision is the precision of Grace in actions; the CRI has seconds only.
	precision = time.Millisecond
	// worthwhile is the minimum gain for which a stop under way is cancelled and requested again with an earlier end.
	// The new request sends the stop signal again. Times that differ by less may be the same: they are rounded when the
	// clock is set.
	worthwhile = 100 * precision
)

// Grace is the pod's termination grace period: that of the spec or, without a spec, the grace period that is recorded
// on the pod's containers.
func (e *Terminator) Grace() time.Duration {
	if p := e.Pod; p != nil {
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
			return pod.Seconds(*s)
		}
		return defaultGrace
	}
	for _, c := range e.Instances {
		if c.Grace != nil {
			return pod.Seconds(*c.Grace)
		}
	}
	return defaultGrace
}

// Term says when and why containers have to stop.
type Term struct {
	// By is when the containers are killed if they haven't ended before.
	By time.Time
	// Why is the reason for the stop, as users see it.
	Why string
	// Message is the message of the event Killing; empty for the kubelet's usual message.
	Message string
}

// Term returns the term of containers with a grace period that starts at the time at. override replaces the pod's
// grace period.
func (e *Terminator) Term(at time.Time, override *time.Duration, why string) Term {
	grace := e.Grace()
	if override != nil {
		grace = *override
	}
	return Term{By: at.Add(grace), Why: why}
}

// StopAll stops every running instance: init, main and ephemeral containers at once, then the sidecars one by one, the
// last one first. The preStop hooks of sidecars run from the beginning (KEP-753). All instances share one grace period:
// once it is over, no container waits for its turn, and each remaining one has MinGrace. StopAll reports whether
// nothing runs any more.
func (e *Terminator) StopAll(t Term) bool {
	none, others, last := true, false, ""
	list := e.Instances
	for i := range list {
		if list[i].State != pod.ContainerRunning {
			continue
		}
		none = false
		if !e.isSidecar(&list[i]) {
			others = true
		}
	}
	if none {
		e.AllBy = time.Time{}
		return true
	}
	if !e.AllBy.IsZero() && e.AllBy.Before(t.By) {
		t.By = e.AllBy
	}
	e.AllBy = t.By
	place := 0
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && e.sidecar(c) > place {
			place, last = e.sidecar(c), c.Name
		}
	}
	late := !e.Plan.Now.Before(t.By)
	if last != "" && e.removeCreated(t) {
		others = true
	}
	for i := range list {
		c := &list[i]
		if c.State != pod.ContainerRunning {
			continue
		}
		turn := !e.isSidecar(c) || !others && c.Name == last || late
		e.kill(c, t, !turn)
	}
	if !late {
		e.Plan.WakeAt(t.By)
	}
	return false
}

// holdingRemovals is the number of failed removals after which a created instance no longer delays the stop of the
// sidecars.
const holdingRemovals = 3

// removeCreated removes the created instances of containers that aren't sidecars, unless they are being created or
// started. It reports whether there are such instances, other than those that can't be removed.
func (e *Terminator) removeCreated(t Term) bool {
	found := false
	for i := range e.Instances {
		c := &e.Instances[i]
		if c.State != pod.ContainerCreated || e.isSidecar(c) {
			continue
		}
		a := pod.Action{Kind: pod.RemoveContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Why: t.Why}
		if r, failing := e.Plan.Retrying(a); !failing || r.Count < holdingRemovals {
			found = true
		}
		if _, busy := e.Plan.Busy("container/" + c.Name); !busy {
			e.Plan.AddRetryWait(c.Name, a)
			e.Plan.Do(a)
		}
	}
	return found
}

func (e *Terminator) isSidecar(c *pod.Container) bool { return e.sidecar(c) > 0 }

// sidecar is the position of an instance's container among the pod's init containers, from 1, if it is a sidecar;
// otherwise 0. It comes from the spec, or from the record on the instance if the spec is gone.
func (e *Terminator) sidecar(c *pod.Container) int {
	if e.Pod == nil {
		if c.CreatedWith == nil {
			return 0
		}
		return c.CreatedWith.Sidecar
	}
	i := slices.IndexFunc(e.Containers, func(m container.Container) bool { return m.Spec.Name == c.Name })
	if i < 0 || e.Containers[i].Role != container.Sidecar {
		return 0
	}
	return i + 1
}

// Asked reports whether an instance has been notified of its stop, by its preStop hook or its stop signal.
func (e *Terminator) Asked(id string) bool {
	k := e.Kills[id]
	_, hook := e.Plan.Busy("hook/" + id)
	return k.Begun || k.PreStopDone || hook
}

// Stop stops one running instance.
func (e *Terminator) Stop(c *pod.Container, t Term) { e.kill(c, t, false) }

// kill stops one running instance step by step: its preStop hook, then the stop signal, and SIGKILL at the end of
// its term, which only moves to earlier times. If held is true, it isn't the instance's turn to stop, and only the
// hook is run.
func (e *Terminator) kill(c *pod.Container, t Term, held bool) {
	k, known := e.Kills[c.ID]
	if !known {
		k = Kill{By: t.By, Why: t.Why}
		e.Plan.RecordKilling(c.Name, t.Message)
	}
	if t.By.Before(k.By) {
		k.By = t.By
	}
	defer func() { e.Kills[c.ID] = k }()
	target := "instance/" + c.ID
	if kind, _ := e.Plan.Busy(target); kind == pod.StopContainer {
		if k.Asked.Sub(e.end(k)) >= worthwhile {
			e.Plan.GiveUp(target) // the next decision stops the instance with the shorter grace period
		}
		return
	}
	hook := pod.Action{Kind: pod.PreStop, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: e.until(k.By),
		Why: t.Why}
	if !k.PreStopDone && e.hasPreStop(c) && e.Plan.Now.Before(k.By) {
		e.Plan.AddRetryWait(c.Name, hook)
		e.Plan.Do(hook)
		e.Plan.WakeAt(k.By)
		return
	}
	if !k.PreStopDone {
		if _, runs := e.Plan.Busy(hook.Target()); runs { // the hook continues until the kill
			k.PreStopDone = true
			e.Plan.RecordPreStopFailed(c.Name, "it ran past the grace period")
		} else if r, waits := e.Plan.Retrying(hook); waits {
			k.PreStopDone = true
			e.Plan.RecordPreStopFailed(c.Name, r.Failure.Message)
		}
	}
	if held && !k.Begun {
		return
	}
	end := e.end(k)
	a := pod.Action{Kind: pod.StopContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: e.until(end),
		Why: t.Why}
	e.Plan.AddRetryWait(c.Name, a)
	if e.Plan.Do(a) {
		k.Asked, k.Begun = end, true
	}
}

// end is when an instance is killed if its stop is requested now.
func (e *Terminator) end(k Kill) time.Time {
	if least := e.Plan.Now.Add(MinGrace); k.By.Before(least) {
		return least
	}
	return k.By
}

// until is the time from now until at, rounded to precision. During a replay the clocks differ from those of the
// recording; the rounding hides the difference, so that a replay gets the same result.
func (e *Terminator) until(at time.Time) time.Duration { return at.Sub(e.Plan.Now).Round(precision) }

// hasPreStop reports whether an instance has a preStop hook: from the spec, or from its own record if the spec is
// gone.
func (e *Terminator) hasPreStop(c *pod.Container) bool {
	if m := e.Containers.Named(c.Name); m != nil {
		return m.LongRunning() && m.Spec.Lifecycle != nil && m.Spec.Lifecycle.PreStop != nil
	}
	return e.Pod == nil && c.CreatedWith != nil && c.CreatedWith.PreStop != nil
}
