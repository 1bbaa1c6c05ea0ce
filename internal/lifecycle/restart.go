package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Crash-loop back-off as documented (Pod lifecycle, "Container restarts"): the
// first restart is immediate, then 10 s doubling to a cap of 300 s; a container
// that ran for 10 minutes starts anew.
const (
	crashBackoff      = 10 * time.Second
	maxCrashBackoff   = 300 * time.Second
	crashBackoffReset = 10 * time.Minute
)

// role is what a container is in its pod.
type role int

const (
	roleMain role = iota
	roleInit
	roleSidecar
)

// roleOf tells the role of an init container.
func roleOf(c *v1.Container) role {
	if pod.IsSidecar(c) {
		return roleSidecar
	}
	return roleInit
}

// restarts reports whether an instance that ended with this code is followed by
// another one, by the container's policy or else the pod's.
func (d *decider) restarts(c *v1.Container, r role, code int32) bool {
	policy := d.in.Pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	if r == roleInit {
		// An init container has only to succeed once.
		return code != 0 && policy != v1.RestartPolicyNever
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// delay is how long a restart waits after this instance ended.
func delay(inst *pod.Container) time.Duration {
	if !inst.StartedAt.IsZero() && inst.FinishedAt.Sub(inst.StartedAt) >= crashBackoffReset {
		return 0
	}
	return inst.Backoff
}

// clockSlack is how far an end may lie ahead of the time of a decision: it may
// have come in just after that was taken.
const clockSlack = time.Minute

// due is when the instance that follows inst may be started. An end in the
// future means that the clock was set back: nobody can say then how long ago it was.
func (d *decider) due(inst *pod.Container) time.Time {
	if inst.FinishedAt.Sub(d.in.Now) > clockSlack {
		return d.in.Now
	}
	return inst.FinishedAt.Add(delay(inst))
}

// nextBackoff is the back-off recorded on the instance that replaces inst.
func (d *decider) nextBackoff(inst *pod.Container) time.Duration {
	if inst == nil {
		return 0
	}
	top := d.in.Node.MaxBackoff
	if top == 0 {
		top = maxCrashBackoff
	}
	if now := delay(inst); now > 0 {
		return min(2*now, top)
	}
	return min(crashBackoff, top)
}

// nextAttempt numbers the instance that follows inst (nil for the first).
func (d *decider) nextAttempt(name string, inst *pod.Container) int {
	n := d.mem.Attempts[name]
	if inst != nil {
		n = max(n, inst.Attempt+1)
	}
	return n
}

// exitCode of an ended instance; one the runtime lost counts as killed.
func exitCode(inst *pod.Container) int32 {
	if inst.State == pod.ContainerUnknown && inst.ExitCode == 0 {
		return 137
	}
	return inst.ExitCode
}
