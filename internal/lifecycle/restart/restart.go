// Package restart decides whether a container that ended is started again, by its restart rules
// and policies, and how long its back-off is.
package restart

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Answer is what follows from a container's end.
type Answer int

const (
	// Stay: it has ended for good.
	Stay Answer = iota
	// Again: another instance follows.
	Again
	// All: every container of the pod is started again (KEP-5532).
	All
)

// OnExit returns what follows from a container's exit code by its restartPolicyRules (KEP-5307),
// the first that fits; then by its own restartPolicy, then by the pod's. failed says that a probe or its postStart hook
// failed and it had to end for that: to restartPolicy OnFailure this is a failure, also if it ended with code 0
// (Pod lifecycle, "Types of probe": "the kubelet kills the container, and the container is subjected to its restart
// policy").
func OnExit(p *v1.Pod, c *v1.Container, r container.Role, code int32, failed bool) Answer {
	if r == container.Ephemeral {
		return Stay // API: they aren't restarted
	}
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		if !fits(rule.ExitCodes, code) {
			continue
		}
		switch rule.Action {
		case v1.ContainerRestartRuleActionRestartAllContainers:
			return All
		case v1.ContainerRestartRuleActionRestart:
			if r == container.Init && code == 0 {
				return Stay // an init container has only to succeed once
			}
			return Again
		}
	}
	policy := policyOf(p, c)
	again := policy != v1.RestartPolicyNever
	if r == container.Init || policy == v1.RestartPolicyOnFailure {
		again = again && (code != 0 || failed)
	}
	if again {
		return Again
	}
	return Stay
}

// Never reports whether a container isn't started again whatever its exit code.
func Never(p *v1.Pod, c *v1.Container) bool {
	return len(c.RestartPolicyRules) == 0 && policyOf(p, c) == v1.RestartPolicyNever
}

// policyOf is the container's own restartPolicy, or the pod's.
func policyOf(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

func fits(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	switch codes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	}
	return false
}

// Crash-loop back-off as documented (Pod lifecycle, "Container restarts"): the
// first restart is immediate, then 10 s doubling to a cap of 300 s; a container
// that ran for 10 minutes starts again.
const (
	// First is the first wait where nothing else is given.
	First = 10 * time.Second
	// Top is the cap where the configuration gives none.
	Top   = 300 * time.Second
	reset = 10 * time.Minute
	// slack is how far an end may lie ahead of the time of a decision: it may have
	// come in just after that was taken.
	slack = time.Minute
)

// Delay is how long a restart waits after this instance ended.
func Delay(inst *pod.Container) time.Duration {
	if !inst.StartedAt.IsZero() && inst.FinishedAt.Sub(inst.StartedAt) >= reset {
		return 0
	}
	return inst.Backoff
}

// After is when something may follow that ended at a time and is waited after. An end in
// the future means that the clock was set back: nobody can say then how long ago it was.
func After(ended time.Time, delay time.Duration, now time.Time) time.Time {
	if ended.Sub(now) > slack {
		return now
	}
	return ended.Add(delay)
}

// Next is the back-off recorded on the instance that replaces inst (nil for
// none); it begins with first, 0 for First, and top caps it, 0 means Top.
func Next(inst *pod.Container, first, top time.Duration) time.Duration {
	if inst == nil {
		return 0
	}
	if now := Delay(inst); now > 0 {
		return Capped(2*now, top)
	}
	return Capped(cmp.Or(first, First), top)
}

// Capped is a wait that is no longer than top, 0 for Top: a recorded one may be from a time
// when the configuration allowed longer ones.
func Capped(wait, top time.Duration) time.Duration {
	if top == 0 {
		top = Top
	}
	return min(wait, top)
}
