package lifecycle_test

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// view is one decision with its inputs, as the laws see it.
type view struct {
	in *lifecycle.Input
	d  *lifecycle.Decision
	// sandbox is the ID of the live sandbox; empty if there is none.
	sandbox string
	// ends says that no container of the pod is started again.
	ends bool
}

func (v *view) observed() []pod.Container { return v.in.Observed.Containers }

// newest is a container's newest instance, but for those whose start was cut off: they
// never ran, and don't count.
func (v *view) newest(name string) *pod.Container {
	list := v.observed()
	for i := range list {
		if c := &list[i]; c.Name == name && !abortedStart(c) {
			return c
		}
	}
	return nil
}

// current is a container's newest instance if it is in the live sandbox.
func (v *view) current(name string) *pod.Container {
	if c := v.newest(name); c != nil && v.sandbox != "" && c.SandboxID == v.sandbox {
		return c
	}
	return nil
}

// has reports whether the runtime has the sandbox or instance.
func (v *view) has(id string) bool {
	return slices.ContainsFunc(v.in.Observed.Sandboxes, func(b pod.Sandbox) bool { return b.ID == id }) || v.byID(id) != nil
}

// reached reports whether the init container or sidecar of this index, or one after it, was created in the live sandbox.
func (v *view) reached(i int) bool {
	return slices.ContainsFunc(v.in.Pod.Spec.InitContainers[i:], func(c v1.Container) bool { return v.current(c.Name) != nil })
}

// finalOnDisk is the final status that the next agent will know; nil if there is none.
func (v *view) finalOnDisk() *v1.PodStatus {
	if k := v.d.Memory.OnDisk; k != nil {
		return k.Final
	}
	return nil
}

func (v *view) runs(name string) bool {
	c := v.current(name)
	return c != nil && c.State == pod.ContainerRunning
}

// abortedStart reports whether the agent died while an instance was started: so containerd tells it.
func abortedStart(c *pod.Container) bool {
	return c.State == pod.ContainerExited && c.StartedAt.IsZero() &&
		(strings.Contains(c.Message, "context canceled") || strings.Contains(c.Message, "temporarily unavailable"))
}

// busy reports whether something is under way on a target, or is begun now.
func (v *view) busy(target string) bool {
	is := func(a pod.Action) bool { return a.Target() == target }
	return slices.ContainsFunc(v.in.InFlight, is) || slices.ContainsFunc(v.d.Actions, is)
}

// unwritable reports whether the pod is told to wait as its checkpoint can't be written.
func (v *view) unwritable() bool {
	return slices.ContainsFunc(v.d.Waits, func(w pod.Wait) bool { return w.Code == pod.WaitRetry && w.Action == pod.SaveCheckpoint })
}

// ending reports whether something is done to end an instance.
func (v *view) ending(id string) bool { return v.busy("instance/"+id) || v.busy("hook/"+id) }

// mains reports whether fit holds of each main container.
func (v *view) mains(fit func(c *v1.Container) bool) bool {
	for i := range v.in.Pod.Spec.Containers {
		if !fit(&v.in.Pod.Spec.Containers[i]) {
			return false
		}
	}
	return true
}

// longRunning calls yield for each sidecar and main container.
func (v *view) longRunning(yield func(c *v1.Container) bool) {
	for i := range v.in.Pod.Spec.InitContainers {
		if c := &v.in.Pod.Spec.InitContainers[i]; pod.IsSidecar(c) && !yield(c) {
			return
		}
	}
	v.mains(yield)
}

func (v *view) isLongRunning(name string) bool {
	for c := range v.longRunning {
		if c.Name == name {
			return true
		}
	}
	return false
}

func isEphemeral(p *v1.Pod, name string) bool {
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

func isInit(p *v1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return !pod.IsSidecar(c)
		}
	}
	return false
}

func isSidecar(p *v1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return pod.IsSidecar(c)
		}
	}
	return false
}

// exitCode of an instance that ended. Of one that the runtime lost nobody knows it: that
// isn't a success.
func exitCode(c *pod.Container) int32 {
	if c.State == pod.ContainerUnknown && c.ExitCode == 0 {
		return 137
	}
	return c.ExitCode
}

// next is what the API says of a container that ended with a code (restartPolicy of pod and
// container, restartPolicyRules, KEP-5307): whether it is started again, or all are (KEP-5532). failed says that it had to end
// for a failed probe or postStart hook, and so has failed whatever the code.
func next(p *v1.Pod, name string, code int32, failed bool) (again, all bool) {
	c := pod.ContainerNamed(p, name)
	if c == nil || isEphemeral(p, name) {
		return false, false
	}
	for _, r := range c.RestartPolicyRules {
		if slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			all = r.Action == v1.ContainerRestartRuleActionRestartAllContainers
			return all || !isInit(p, name) || code != 0, all
		}
	}
	policy := string(p.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	switch policy {
	case "Always":
		return !isInit(p, name) || code != 0, false
	case "OnFailure":
		return code != 0 || failed, false
	}
	return false, false
}

// after is what follows from the end of an instance.
func (l *laws) after(p *v1.Pod, c *pod.Container) (again, all bool) {
	return next(p, c.Name, exitCode(c), l.of(c.ID).condemned)
}

// mayAllRestart reports whether the end of a container of the pod may have all started anew.
func mayAllRestart(p *v1.Pod) bool {
	for name := range pod.ContainerNames(p) {
		if slices.ContainsFunc(pod.ContainerNamed(p, name).RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}

// never reports whether a container isn't started again whatever its exit code.
func (v *view) never(name string) bool {
	c := pod.ContainerNamed(v.in.Pod, name)
	policy := string(v.in.Pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	return policy == "Never" && c.RestartPolicyRules == nil
}

func (v *view) byID(id string) *pod.Container {
	for i := range v.observed() {
		if c := &v.observed()[i]; c.ID == id {
			return c
		}
	}
	return nil
}

func (v *view) anyRuns(name string) bool {
	return slices.ContainsFunc(v.observed(), func(c pod.Container) bool { return c.Name == name && c.State == pod.ContainerRunning })
}

func isTrue(st *v1.PodStatus, typ v1.PodConditionType) bool {
	c := condition(st, typ)
	return c != nil && c.Status == v1.ConditionTrue
}

func condition(st *v1.PodStatus, typ v1.PodConditionType) *v1.PodCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == typ {
			return &st.Conditions[i]
		}
	}
	return nil
}

// stepped is by how much the clock was set since the agent's start.
func (v *view) stepped() (by time.Duration) {
	for _, s := range v.in.Node.ClockSteps {
		by += s.By
	}
	return by
}

// onClock is a time of the past as today's clock would have shown it.
func (v *view) onClock(t time.Time) time.Time { return pod.OnClock(t, v.in.Now, v.in.Node.ClockSteps) }
