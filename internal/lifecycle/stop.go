package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// defaultGrace is the API's default of terminationGracePeriodSeconds, for pods whose spec is unknown.
const defaultGrace = 30 * time.Second

// stop takes the pod down: containers, sandboxes, then everything that was
// prepared for it. Once begun it is never turned back.
func (d *decider) stop() {
	s := d.in.Stop
	for _, a := range d.in.InFlight {
		if a.Kind == pod.EnsureImage || makes(a.Kind) {
			d.out.Cancel = append(d.out.Cancel, a.Target())
		}
	}
	end := d.graceEnd(s.At, s.Grace)
	if !d.stopContainers(end, s.Why) {
		d.because(fmt.Sprintf("stopping (%s), killed at %s", s.Why, end.UTC().Format(time.RFC3339)))
		return
	}
	// Something that is being made now has to be known before it can be removed.
	for _, a := range d.in.InFlight {
		if makes(a.Kind) {
			d.because(fmt.Sprintf("stopping (%s), waiting for %s to end", s.Why, a.Kind))
			return
		}
	}
	gone := true
	for i := range d.sandboxes() {
		sb := &d.sandboxes()[i]
		gone = false
		if d.stopSandbox(sb, s.Why) {
			d.do(pod.Action{Kind: pod.RemoveSandbox, ID: sb.ID, Why: s.Why})
		}
	}
	if !gone {
		// One that came late may have brought back what was cleaned.
		d.mem.Cleaned = false
		d.because("the sandbox is being removed")
		return
	}
	if list := d.instances(); len(list) > 0 {
		for i := range list {
			d.do(pod.Action{Kind: pod.RemoveContainer, Container: list[i].Name, ID: list[i].ID, Attempt: list[i].Attempt, Why: s.Why})
		}
		return
	}
	if !d.mem.Cleaned {
		a := pod.Action{Kind: pod.CleanPod, Why: s.Why}
		d.because("its folders, cgroup and logs are being removed")
		d.tellRetry(a)
		d.do(a)
		return
	}
	d.out.Done = true
}

// makes reports whether an action brings about something that has to be taken
// down again.
func makes(kind pod.ActionKind) bool {
	switch kind {
	case pod.PreparePod, pod.CreateSandbox, pod.CreateContainer, pod.StartContainer:
		return true
	}
	return false
}

// graceEnd is when containers are killed that were asked to stop at `at`. The
// grace is the override's, the pod's, or what the containers were made with.
func (d *decider) graceEnd(at time.Time, override *time.Duration) time.Time {
	if override != nil {
		return at.Add(*override)
	}
	if p := d.in.Pod; p != nil && p.Spec.TerminationGracePeriodSeconds != nil {
		return at.Add(time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second)
	}
	for _, c := range d.instances() {
		if c.Grace != nil {
			return at.Add(time.Duration(*c.Grace) * time.Second)
		}
	}
	return at.Add(defaultGrace)
}

// stopContainers stops every running instance: init and main containers at once,
// then the sidecars one by one from the last (KEP-753). It reports whether
// nothing runs any more.
func (d *decider) stopContainers(end time.Time, why string) bool {
	running := map[string][]*pod.Container{}
	none := true
	list := d.instances()
	for i := range list {
		if list[i].State == pod.ContainerRunning {
			running[list[i].Name] = append(running[list[i].Name], &list[i])
			none = false
		}
	}
	if none {
		return true
	}
	var sidecars []string
	if d.in.Pod != nil {
		for i := range d.in.Pod.Spec.InitContainers {
			if c := &d.in.Pod.Spec.InitContainers[i]; roleOf(c) == roleSidecar && len(running[c.Name]) > 0 {
				sidecars = append(sidecars, c.Name)
			}
		}
	}
	isSidecar := map[string]bool{}
	for _, name := range sidecars {
		isSidecar[name] = true
	}
	others := false
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && !isSidecar[c.Name] {
			others = true
			d.stopInstance(c, end, why)
		}
	}
	if !others && len(sidecars) > 0 {
		for _, c := range running[sidecars[len(sidecars)-1]] {
			d.stopInstance(c, end, why)
		}
	}
	return false
}

func (d *decider) stopInstance(c *pod.Container, end time.Time, why string) {
	grace := max(end.Sub(d.in.Now), 0)
	a := pod.Action{Kind: pod.StopContainer, Container: c.Name, ID: c.ID, Attempt: c.Attempt, Grace: grace, Why: why}
	d.tellRetry(a)
	if d.do(a) {
		d.event(v1.EventTypeNormal, "Killing", c.Name, fmt.Sprintf("Stopping container %s: %s", c.Name, why))
	}
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
		d.because(fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message))
	}
}
