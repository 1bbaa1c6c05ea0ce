package lifecycle_test

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// extension is the one extension of a grace that Kubernetes knows: for a
// container whose preStop hook, or whose turn as a sidecar, used it up. It is also what is left to
// a container whose grace is shorter.
const extension = 2 * time.Second

// stops holds the laws of what ends containers.
func (l *laws) stops(v *view, a pod.Action) {
	if a.Kind != pod.PreStop && a.Kind != pod.StopContainer {
		return
	}
	c := v.byID(a.ID)
	if c == nil {
		l.broken("%s of %s, which isn't there", a.Kind, a.ID)
		return
	}
	l.grace(v, a, c)
	if v.in.Pod == nil {
		return
	}
	own := l.asksFor(v, c) && v.in.Stop == nil && l.over == ""
	if !v.ends && !own && v.current(c.Name) == c && !l.restartAll[c.ID] && c.State == pod.ContainerRunning && l.of(c.ID).by.IsZero() {
		l.broken("%s of %s without a cause", a.Kind, a.ID)
	}
	hook := l.hasPreStop(v, c)
	switch i := l.of(c.ID); {
	case a.Kind == pod.PreStop && (!hook || c.State != pod.ContainerRunning):
		l.broken("preStop hook of %s, which has none or doesn't run", a.ID)
	case a.Kind == pod.PreStop && i.preStoppedNow:
		l.broken("the preStop hook of %s runs again", a.ID)
	case a.Kind == pod.StopContainer && hook && !i.preStopped && (a.Grace > extension || v.in.Stop != nil && i.by.IsZero() && v.in.Now.Before(l.stopBy)):
		l.broken("%s is stopped before its preStop hook has run", a.ID)
	}
	// What an edit revives has no order; a stop whose hook had begun before it goes on.
	revived := !l.endsAll(v) && l.of(c.ID).preStopped
	if a.Kind == pod.StopContainer && !own && !revived && a.Grace > extension && !l.of(c.ID).stopping {
		l.turn(v, c)
	}
}

// onDisk: what a container of a living pod has to end for is on disk before, where its end alone wouldn't have it started again.
func (l *laws) onDisk(s *sim, v *view, a pod.Action) {
	c := v.byID(a.ID)
	if a.Kind != pod.PreStop && a.Kind != pod.StopContainer || c == nil || v.in.Pod == nil || v.ends || len(l.restartAll) > 0 ||
		v.current(a.Container) != c || c.State != pod.ContainerRunning || !l.of(a.ID).by.IsZero() || !v.isLongRunning(a.Container) {
		return
	}
	if v.unwritable() {
		return
	}
	disk := s.disk
	if disk == nil {
		disk = &pod.Checkpoint{}
	}
	_, probe := l.probeGrace(v, c)
	heard, _ := next(v.in.Pod, c.Name, 0, true)
	forgotten, _ := next(v.in.Pod, c.Name, 0, false)
	if (probe || l.of(c.ID).hookFailed) && heard != forgotten && disk.Failed[c.ID].Cause == "" ||
		c.Image != pod.ContainerNamed(v.in.Pod, c.Name).Image && !slices.Contains(disk.Renew, c.ID) {
		l.broken("%s of %s, and the next agent wouldn't know that it is to be started again", a.Kind, c.ID)
	}
}

// asksFor reports whether a container of a living pod has to end for a reason of its own: a probe or hook
// failed, or its image or resources were edited.
func (l *laws) asksFor(v *view, c *pod.Container) bool {
	spec := pod.ContainerNamed(v.in.Pod, c.Name)
	return spec == nil || l.of(c.ID).failing || l.of(c.ID).toRenew || edited(v.in.Pod, spec, c)
}

// hasPreStop reports whether an instance has a preStop hook (only sidecars and main containers may).
func (l *laws) hasPreStop(v *view, c *pod.Container) bool {
	spec := pod.ContainerNamed(v.in.Pod, c.Name)
	return spec != nil && v.isLongRunning(c.Name) && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
}

// turn: a sidecar is stopped after everything that isn't one has ended, and after the
// sidecars that follow it in the spec (KEP-753), unless the grace is over.
func (l *laws) turn(v *view, c *pod.Container) {
	if !isSidecar(v.in.Pod, c.Name) || !v.ends && v.sandbox != "" && c.SandboxID != v.sandbox {
		return // one in an older sandbox is in the way
	}
	later := false
	for i := range v.in.Pod.Spec.InitContainers {
		name := v.in.Pod.Spec.InitContainers[i].Name
		if later && isSidecar(v.in.Pod, name) && v.anyRuns(name) {
			l.broken("sidecar %s is stopped before sidecar %s, which comes after it", c.Name, name)
		}
		later = later || name == c.Name
	}
	for i := range v.observed() {
		o := &v.observed()[i]
		stuck := l.failed[effort{pod.RemoveContainer, "instance/" + o.ID}].count >= 3
		if (o.State == pod.ContainerRunning || o.State == pod.ContainerCreated && !stuck) && !isSidecar(v.in.Pod, o.Name) {
			l.broken("sidecar %s is stopped while %s runs or may be starting", c.Name, o.ID)
		}
	}
}

// podGrace is the pod's own termination grace.
func podGrace(p *v1.Pod) time.Duration {
	if p == nil || p.Spec.TerminationGracePeriodSeconds == nil {
		return 30 * time.Second // the API's default
	}
	return pod.Seconds(*p.Spec.TerminationGracePeriodSeconds)
}

// endsBy is when a pod is killed that has to end since a time, with a grace of its own or nil for the pod's.
func endsBy(p *v1.Pod, since time.Time, grace *time.Duration) time.Time {
	if grace != nil {
		return since.Add(*grace)
	}
	return since.Add(podGrace(p))
}

// grace: a container gets the grace that it is due, counted from when it was known that it
// has to end; what it was given is only ever shortened.
func (l *laws) grace(v *view, a pod.Action, c *pod.Container) {
	i, until := l.of(c.ID), v.in.Now.Add(a.Grace)
	if a.Kind == pod.StopContainer && a.Grace < extension {
		l.broken("%s gets %s between its stop signal and SIGKILL", c.ID, a.Grace)
	}
	if !i.by.IsZero() && until.After(i.by) && a.Grace > extension {
		l.broken("the grace of %s grew by %s", c.ID, until.Sub(i.by))
	}
	if !i.recalled.IsZero() && v.in.Now.Before(i.recalled) && !until.Before(i.recalled) {
		l.broken("the stop of %s was given up for one that takes as long", c.ID)
	}
	if !i.by.IsZero() || v.in.Pod == nil {
		return
	}
	least, most := time.Duration(0), podGrace(v.in.Pod)
	switch {
	case v.in.Stop != nil:
		most = l.stopBy.Sub(v.in.Now)
		if l.over == "" && !l.finished && v.sandbox != "" && c.SandboxID == v.sandbox && !l.restartAll[c.ID] {
			least = most
		}
	case l.over != "":
		most = max(most, l.longest)
	case l.hopeless && !l.finished:
		most = max(l.stopBy.Sub(v.in.Now), extension)
		if v.current(c.Name) == c {
			least = l.stopBy.Sub(v.in.Now) // a preStop hook gets no more than that
		}
	case v.current(c.Name) == c && !l.restartAll[c.ID]:
		if g, ok := l.probeGrace(v, c); ok && c.State == pod.ContainerRunning && (l.finished || l.perhaps) {
			most = max(most, g)
		} else if ok && c.State == pod.ContainerRunning {
			least, most = g, g
		}
	}
	if a.Grace < least-time.Millisecond {
		l.broken("%s gets %s of its grace of %s", c.ID, a.Grace, least)
	}
	if a.Grace > max(most, extension) {
		l.broken("%s gets a grace of %s instead of %s", c.ID, a.Grace, most)
	}
}

// probeGrace is the grace of a container whose startup or liveness probe failed: the probe's
// own, or the pod's (API: Probe.terminationGracePeriodSeconds). What an earlier agent wrote down counts.
func (l *laws) probeGrace(v *view, c *pod.Container) (time.Duration, bool) {
	failed := l.of(c.ID).recorded
	for i := range v.in.Probes {
		if r := &v.in.Probes[i]; !r.OK && r.ID == c.ID && r.Kind != pod.ProbeReadiness {
			failed = r.Kind
			break
		}
	}
	if failed == "" {
		return 0, false
	}
	spec := pod.ContainerNamed(v.in.Pod, c.Name)
	probe := spec.LivenessProbe
	if failed == pod.ProbeStartup {
		probe = spec.StartupProbe
	}
	if s := probe.TerminationGracePeriodSeconds; s != nil {
		return pod.Seconds(*s), true
	}
	return podGrace(v.in.Pod), true
}

// ending: in a pod that has to go, or of which nothing is to be kept, everything but the sidecars is asked to end at once, and
// the preStop hooks of all run from the beginning (KEP-753).
func (l *laws) ending(v *view) {
	if v.in.Stop == nil && l.over == "" && !l.hopeless {
		return
	}
	for i := range v.observed() {
		c := &v.observed()[i]
		if c.State != pod.ContainerRunning || v.ending(c.ID) {
			continue
		}
		if _, failed := l.failed[effort{pod.StopContainer, "instance/" + c.ID}]; failed {
			continue
		}
		if _, waits := l.failed[effort{pod.PreStop, "hook/" + c.ID}]; waits && v.in.Now.Before(l.stopBy) {
			continue
		}
		if !isSidecar(v.in.Pod, c.Name) || l.hasPreStop(v, c) && !l.of(c.ID).preStopped && v.in.Now.Before(l.stopBy) {
			l.broken("nothing is done to end %s", c.ID)
		}
	}
}

// endsAll reports whether the pod ends with all that runs of it, for good.
func (l *laws) endsAll(v *view) bool {
	return v.in.Stop != nil || l.over != "" || l.hopeless || l.terminal != ""
}

// atOnce: the grace of a pod that ends is one for all. Once it is over, nothing waits for its turn, and what is left has the
// same time (Pod Lifecycle, "Termination of Pods"; KEP-753; kubernetes/kubernetes#125880).
func (l *laws) atOnce(v *view) {
	if !l.endsAll(v) || l.together.IsZero() || v.in.Now.Before(l.together) {
		return
	}
	for i := range v.observed() {
		c := &v.observed()[i]
		if _, failed := l.failed[effort{pod.StopContainer, "instance/" + c.ID}]; c.State == pod.ContainerRunning && !failed && !v.busy("instance/"+c.ID) {
			l.broken("the pod's grace is over since %s, and %s isn't asked to stop", v.in.Now.Sub(l.together), c.ID)
		}
	}
}

// failing: a container whose startup or liveness probe or postStart hook failed is being
// ended (Pod Lifecycle, "Types of probe"; Container Lifecycle Hooks), once that is on disk if it may end with code 0.
func (l *laws) failing(v *view) {
	if v.ends || len(l.restartAll) > 0 || !l.prepared || v.busy("pod") || l.base != v.in.Base {
		return // it is looked at once the pod is prepared, or ends with the others
	}
	for c := range v.longRunning {
		inst := v.current(c.Name)
		if inst == nil || inst.State != pod.ContainerRunning || v.ending(inst.ID) {
			continue
		}
		_, failed := l.probeGrace(v, inst)
		_, waits := l.failed[effort{pod.StopContainer, "instance/" + inst.ID}]
		_, hook := l.failed[effort{pod.PreStop, "hook/" + inst.ID}]
		heard, _ := next(v.in.Pod, c.Name, 0, true)
		forgotten, _ := next(v.in.Pod, c.Name, 0, false)
		first := (heard != forgotten || inst.Image != c.Image) && v.busy("kept") // else it might count as having succeeded
		if (failed || l.of(inst.ID).hookFailed) && !waits && !hook && !first {
			l.broken("%s failed, and nothing is done to end it", inst.ID)
		}
	}
}

// cancels: what is being made for a pod that has to go is given up, and so is a stop that would take longer
// than the container may. A preStop hook holds up the stop until the grace is over, and ends with its container
// (Container Lifecycle Hooks).
func (l *laws) cancels(v *view) {
	for _, a := range v.in.InFlight {
		if slices.Contains(v.d.Cancel, a.Target()) {
			continue
		}
		switch a.Kind {
		case pod.EnsureImage, pod.PreparePod, pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PostStart:
			if v.in.Stop != nil || l.over != "" {
				l.broken("%s isn't given up, and the pod has to go", a.Kind)
			}
		case pod.PreStop, pod.StopContainer:
			c := v.byID(a.ID)
			if gone := c == nil || c.State != pod.ContainerRunning; gone && a.Kind == pod.PreStop {
				l.broken("the preStop hook of %s goes on, which doesn't run any more", a.ID)
			} else if gone || v.in.Stop == nil && (l.over == "" || !l.cut) || l.stopBy.IsZero() {
				continue
			}
			if a.Kind == pod.StopContainer && l.stopBy.Add(extension).Before(l.of(c.ID).by) && v.in.Now.Add(extension).Before(l.of(c.ID).by) {
				l.broken("%s of %s goes on beyond a grace that was shortened", a.Kind, a.ID)
			}
			_, failed := l.failed[effort{pod.StopContainer, "instance/" + a.ID}]
			if a.Kind == pod.PreStop && !v.in.Now.Before(l.stopBy) && !failed && !v.busy("instance/"+a.ID) {
				l.broken("the preStop hook of %s holds up its stop beyond the grace", a.ID)
			}
		}
	}
}

// removes holds the laws of what is removed: nothing that runs; of a pod that stays neither a
// container's newest instance nor the one before, whose log people want to see.
func (l *laws) removes(v *view, a pod.Action) {
	switch a.Kind {
	case pod.RemoveContainer:
		if c := v.byID(a.ID); c != nil {
			l.removed(v, a, c)
		}
	case pod.StopSandbox, pod.RemoveSandbox:
		if a.ID == v.sandbox && !v.ends {
			l.broken("%s of the living pod's sandbox", a.Kind)
		}
		for i := range v.observed() {
			switch c := &v.observed()[i]; {
			case c.SandboxID != a.ID:
			case c.State == pod.ContainerRunning:
				l.broken("%s of %s while %s runs in it", a.Kind, a.ID, c.ID)
			case a.Kind == pod.RemoveSandbox:
				l.removed(v, a, c)
			}
		}
	}
}

func (l *laws) removed(v *view, a pod.Action, c *pod.Container) {
	if c.State == pod.ContainerRunning {
		l.broken("%s is removed while it runs", c.ID)
	}
	if v.in.Stop != nil || l.restartAll[c.ID] || !c.Ended() || abortedStart(c) {
		return
	}
	newer := 0
	for i := range v.observed() {
		if o := &v.observed()[i]; o.Name == c.Name && o.Attempt > c.Attempt {
			newer++
		}
	}
	if newer == 0 && slices.Contains(v.in.ExcessContainers, c.ID) && v.finalOnDisk() != nil {
		return // the node is short of disk space, and the pod's final status is on disk
	}
	if newer == 0 || newer == 1 && v.in.Node.ContainerGC == nil && !slices.Contains(v.in.ExcessContainers, c.ID) {
		l.broken("%s removes %s, which is to be kept for its log", a.Kind, c.ID)
	}
}
