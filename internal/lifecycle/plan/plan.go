// Package plan collects the output of a decision: actions, events, waits and the time of the next decision. It knows
// which actions are under way and which are in back-off, so that every decision may ask for the same action again.
package plan

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Plan is the output of one decision while it is being made.
type Plan struct {
	// Now is the time of the decision.
	Now time.Time
	// Actions, Cancel, Events, Waiting and Wake are the requests so far (see lifecycle.Decision).
	Actions []pod.Action
	Cancel  []string
	Events  []pod.Event
	Waiting []pod.Wait
	Wake    time.Time
	// Retries holds the failed actions; Plan changes it.
	Retries Retries
	// Asked holds, by retryKey, the retry triggers as they were when the action was last started; Plan changes it.
	Asked map[string]RetryTriggers

	triggers RetryTriggers
	inFlight []pod.Action
	busy     map[string]pod.ActionKind
}

// RetryTriggers holds the times of events after which it is worthwhile to retry a failed action before its back-off
// ends. Each time only moves forward.
type RetryTriggers struct {
	// Images is when images were last added to the node by other means than a pull.
	Images time.Time
	// Room is when resources were last freed on the node.
	Room time.Time
	// Objects is when objects that pods refer to were last added, changed or removed.
	Objects time.Time
	// Disk is when a disk last got room.
	Disk time.Time
	// Runtime is when the container runtime last answered again.
	Runtime time.Time
}

// New returns an empty plan on top of the actions under way. The plan changes the maps retries and asked.
func New(now time.Time, inFlight []pod.Action, retries Retries, asked map[string]RetryTriggers,
	triggers RetryTriggers) *Plan {
	p := &Plan{Now: now, Retries: retries, Asked: asked, triggers: triggers, inFlight: inFlight,
		busy: make(map[string]pod.ActionKind, len(inFlight))}
	for _, a := range inFlight {
		p.busy[a.Target()] = a.Kind
	}
	return p
}

// InFlight lists the actions that were under way before this decision.
func (p *Plan) InFlight() []pod.Action { return p.inFlight }

// Busy returns the kind of action that is under way on a target, or starts with this decision.
func (p *Plan) Busy(target string) (pod.ActionKind, bool) {
	kind, ok := p.busy[target]
	return kind, ok
}

// Do requests an action, unless its target is busy or the action is in back-off. It reports whether the action starts
// with this decision.
func (p *Plan) Do(a pod.Action) bool {
	t := a.Target()
	if _, ok := p.busy[t]; ok {
		return false
	}
	if r, ok := p.Waits(a); ok {
		p.WakeAt(r.At)
		return false
	}
	p.busy[t] = a.Kind
	p.Actions = append(p.Actions, a)
	if a.ID == "" {
		p.Asked[retryKey(a)] = p.triggers
	}
	return true
}

// GiveUp cancels the action under way on a target.
func (p *Plan) GiveUp(target string) {
	for _, t := range p.Cancel {
		if t == target {
			return
		}
	}
	p.Cancel = append(p.Cancel, target)
}

// WakeAt schedules the next decision for t at the latest.
func (p *Plan) WakeAt(t time.Time) {
	if p.Wake.IsZero() || t.Before(p.Wake) {
		p.Wake = t
	}
}
