// Package restart decides whether a container that exited is restarted, by its restart rules and policies, and after
// which back-off.
package restart

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Answer is the consequence of a container's exit.
type Answer int

const (
	// Stay: the container has ended for good.
	Stay Answer = iota
	// Again: the container is restarted.
	Again
	// All: every container of the pod is restarted (KEP-5532).
	All
)

// OnExit returns the consequence of a container's exit code: by the first of its restartPolicyRules that matches
// (KEP-5307), else by its own restartPolicy, else by the pod's. failed says that the container had to end because a
// probe or its postStart hook failed: for restartPolicy OnFailure that is a failure even with exit code 0 (Pod
// lifecycle, "Types of probe": "the kubelet kills the container, and the container is subjected to its restart
// policy").
func OnExit(p *v1.Pod, c *v1.Container, r container.Role, code int32, failed bool) Answer {
	if r == container.Ephemeral {
		return Stay // API: ephemeral containers aren't restarted
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
				return Stay // an init container has to succeed only once
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

// Never reports whether a container is never restarted, whatever its exit code is.
func Never(p *v1.Pod, c *v1.Container) bool {
	return len(c.RestartPolicyRules) == 0 && policyOf(p, c) == v1.RestartPolicyNever
}

// policyOf is the container's own restartPolicy, or the pod's if it has none.
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

// Crash-loop back-off as documented (Pod lifecycle, "Container restarts"): the first restart is immediate, then 10 s
// doubling to a cap of 300 s. A run of 10 minutes resets it.
const (
	// First is the default of the delay before the second restart.
	First = 10 * time.Second
	// Top is the default of the maximum delay.
	Top   = 300 * time.Second
	reset = 10 * time.Minute
)

// Delay is the delay of the restart after this instance.
func Delay(inst *pod.Container) time.Duration {
	if !inst.StartedAt.IsZero() && inst.FinishedAt.Sub(inst.StartedAt) >= reset {
		return 0
	}
	return inst.Backoff
}

// Past reports whether an exit lies in the past. An exit lies in the future if the clock was set back after it.
func Past(ended, now time.Time) bool { return ended.Sub(now) <= pod.ClockSlack }

// After returns the earliest time of a restart: the exit at ended plus the delay. If the exit lies in the future,
// the clock was set back, and the time since the exit is unknown; then the container may be restarted now.
func After(ended time.Time, delay time.Duration, now time.Time) time.Time {
	if !Past(ended, now) {
		return now
	}
	return ended.Add(delay)
}

// Next is the back-off to record on the instance that replaces inst; inst is nil if there was none. first is the
// first delay, 0 for First; top is the cap, 0 for Top.
func Next(inst *pod.Container, first, top time.Duration) time.Duration {
	if inst == nil {
		return 0
	}
	if now := Delay(inst); now > 0 {
		return Capped(2*now, top)
	}
	return Capped(cmp.Or(first, First), top)
}

// Capped limits a delay to top, 0 for Top: the recorded delay may be from a time when the configuration allowed longer
// delays.
func Capped(wait, top time.Duration) time.Duration {
	if top == 0 {
		top = Top
	}
	return min(wait, top)
}
