package lifecycle_test

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// probes: startup probes run until they succeed, then the others; in a pod that ends only
// readiness is looked at (Pod Lifecycle, "Container probes").
func (l *laws) probes(v *view) {
	wants := func(inst *pod.Container, kind pod.ProbeKind) bool {
		return slices.Contains(v.d.Probes, pod.Probe{Container: inst.Name, ID: inst.ID, Kind: kind})
	}
	for _, p := range v.d.Probes {
		c, spec := v.byID(p.ID), pod.ContainerNamed(v.in.Pod, p.Container)
		switch i := l.of(p.ID); {
		case c == nil || c.State != pod.ContainerRunning:
			l.broken("%s probe of %s, which doesn't run", p.Kind, p.ID)
		case p.Kind == pod.ProbeStartup && i.startedNow:
			l.broken("startup probe of %s after it succeeded", p.ID)
		case p.Kind != pod.ProbeStartup && !l.started(spec, c):
			l.broken("%s probe of %s before it is started", p.Kind, p.ID)
		case p.Kind != pod.ProbeReadiness && (v.in.Stop != nil || l.over != "" || l.hopeless):
			l.broken("%s probe of %s while the pod ends", p.Kind, p.ID)
		}
	}
	if v.ends {
		return
	}
	for c := range v.longRunning {
		inst := v.current(c.Name)
		if inst == nil || inst.State != pod.ContainerRunning || v.busy("container/"+c.Name) {
			continue
		}
		i := l.of(inst.ID)
		switch {
		case hasPostStart(c) && !i.hookedNow:
		case c.StartupProbe != nil && !i.startedNow:
			if !i.started && !wants(inst, pod.ProbeStartup) {
				l.broken("no startup probe of %s", inst.ID)
			}
		case c.LivenessProbe != nil && !wants(inst, pod.ProbeLiveness), c.ReadinessProbe != nil && !wants(inst, pod.ProbeReadiness):
			l.broken("no liveness or readiness probe of %s", inst.ID)
		}
	}
}

// statuses holds the laws of the API status.
func (l *laws) statuses(s *sim, v *view) {
	st := v.d.Status
	for i := range st.InitContainerStatuses {
		l.container(v, &st.InitContainerStatuses[i])
	}
	for i := range st.ContainerStatuses {
		l.container(v, &st.ContainerStatuses[i])
	}
	for i := range st.EphemeralContainerStatuses {
		l.container(v, &st.EphemeralContainerStatuses[i])
	}
	l.phase(s, v)
	l.conditions(v)
	l.others(v)
	l.admission(v)
	l.status = st
}

// container: its state is one of three, and that of its newest instance; it is started and
// ready when its hook and probes say so (API: ContainerStatus).
func (l *laws) container(v *view, c *v1.ContainerStatus) {
	n := 0
	for _, set := range [...]bool{c.State.Running != nil, c.State.Waiting != nil, c.State.Terminated != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		l.broken("%s has %d states", c.Name, n)
	}
	if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated == nil {
		l.broken("%s backs off, and its last end isn't told", c.Name)
	}
	var was *v1.ContainerStatus
	if l.status != nil {
		was = of(l.status, c.Name)
	}
	if was != nil && c.RestartCount < was.RestartCount && v.in.Stop == nil {
		l.broken("the restart count of %s falls from %d to %d", c.Name, was.RestartCount, c.RestartCount)
	}
	l.leaves(v, c)
	inst := v.newest(c.Name)
	if inst != nil && inst.Ended() && l.ran[c.Name] > inst.Attempt {
		inst = nil // the newest has vanished
	}
	if isInit(v.in.Pod, c.Name) && (inst == nil || inst.State == pod.ContainerUnknown) && !v.mains(func(m *v1.Container) bool { return v.current(m.Name) == nil }) &&
		!(c.Ready && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0) && len(l.restartAll) == 0 {
		l.broken("init container %s has succeeded, as a main container was made, and tells %v", c.Name, c.State)
	}
	if inst == nil {
		if was != nil && was.State.Running != nil && c.State.Terminated == nil && c.LastTerminationState.Terminated == nil {
			l.broken("%s was told as running, and nothing of its end", c.Name)
		}
		if c.State.Running != nil {
			l.broken("%s is told as running, and isn't there", c.Name)
		}
		if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" && v.newest(c.Name) == nil {
			l.broken("%s backs off, and isn't there", c.Name)
		}
		return
	}
	told := l.told(v, inst)
	if w := c.State.Waiting; told.Ended() && w != nil && (w.Reason == "ContainerCreating" || w.Reason == "PodInitializing") && !l.mustWait(v, c, told) {
		l.broken("%s doesn't tell how %s ended, which ran before it", c.Name, told.ID)
	}
	final := v.d.Memory.Checkpoint != nil && v.d.Memory.Checkpoint.Final != nil
	if v.in.Stop == nil && !final && int(c.RestartCount) < told.Attempt {
		l.broken("%s has a restart count of %d, and %d instances were made before %s", c.Name, c.RestartCount, told.Attempt, told.ID)
	}
	spec := pod.ContainerNamed(v.in.Pod, c.Name)
	hook, runs := v.isLongRunning(c.Name) && hasPostStart(spec), inst.State == pod.ContainerRunning
	switch i := l.of(inst.ID); {
	case c.State.Running != nil && (!runs || hook && !i.hooked),
		c.State.Running == nil && runs && (!hook || i.hookedNow) && v.in.Stop == nil:
		l.broken("%s is told as %v, and is %s with a postStart hook that is done: %v", c.Name, c.State, inst.State, !hook || i.hooked)
	case runs && i.hookFailed && len(l.restartAll) == 0 && (c.State.Waiting == nil || c.State.Waiting.Reason != "PostStartHookError"):
		l.broken("the postStart hook of %s failed, and it tells %v", inst.ID, c.State)
	}
	if c.Started != nil && *c.Started && v.isLongRunning(c.Name) && !l.started(spec, inst) {
		l.broken("%s is told as started, and its hook or startup probe doesn't say so", c.Name)
	}
	if c.Ready && v.isLongRunning(c.Name) {
		l.ready(v, spec, inst)
	}
	l.backsOff(v, c, inst)
}

// leaves: a container that was told to have ended for good by its exit code is never told as anything else: API servers
// refuse that ("may not be transitioned to non-terminated state"), and every status of the pod from then on.
func (l *laws) leaves(v *view, c *v1.ContainerStatus) {
	end := l.toldEnd[c.Name]
	if l.toldEnd[c.Name] = c.State.Terminated; end == nil || c.State.Terminated != nil || !v.isLongRunning(c.Name) || mayAllRestart(v.in.Pod) {
		return
	}
	if there := v.byID(strings.TrimPrefix(end.ContainerID, v.in.Node.RuntimeName+"://")); there == nil {
		return // the runtime has no record of that any more
	}
	if again, _ := next(v.in.Pod, c.Name, end.ExitCode, false); !again {
		l.broken("%s was told to have ended with code %d, and is told as %v", c.Name, end.ExitCode, c.State)
	}
}

// mustWait reports whether a container can't tell as its state how an instance ended, which it tells as its last one.
func (l *laws) mustWait(v *view, c *v1.ContainerStatus, told *pod.Container) bool {
	again, _ := next(v.in.Pod, c.Name, exitCode(told), false)
	last := c.LastTerminationState.Terminated
	return !again && v.isLongRunning(c.Name) && last != nil && last.ExitCode == exitCode(told)
}

// told is the instance that a container's status is about: its newest, or while that is being started, with its
// postStart hook, the one before.
func (l *laws) told(v *view, newest *pod.Container) *pod.Container {
	if spec := pod.ContainerNamed(v.in.Pod, newest.Name); newest.State != pod.ContainerCreated &&
		(newest.State != pod.ContainerRunning || !v.isLongRunning(newest.Name) || !hasPostStart(spec) || l.of(newest.ID).hookedNow || l.of(newest.ID).hookFailed) {
		return newest
	}
	list := v.observed()
	i := slices.IndexFunc(list, func(c pod.Container) bool { return c.Name == newest.Name && c.ID != newest.ID && !abortedStart(&c) })
	if i >= 0 && list[i].Ended() {
		return &list[i]
	}
	return newest
}

// ready: a container is ready while it runs, is started and its readiness probe says so: now, or if
// it wasn't tried yet by a new agent, the last time.
func (l *laws) ready(v *view, c *v1.Container, inst *pod.Container) {
	if inst.State != pod.ContainerRunning || !l.started(c, inst) {
		l.broken("%s is ready and not started", c.Name)
	}
	if c.ReadinessProbe == nil {
		return
	}
	ok := l.of(inst.ID).wasReady
	for i := range v.in.Probes {
		if r := &v.in.Probes[i]; r.ID == inst.ID && r.Kind == pod.ProbeReadiness {
			ok = r.OK
		}
	}
	if !ok {
		l.broken("%s is ready and no probe says so", c.Name)
	}
}

// backsOff: a container that waits before it is started again tells so (CrashLoopBackOff); one that was edited doesn't wait.
func (l *laws) backsOff(v *view, c *v1.ContainerStatus, inst *pod.Container) {
	if v.ends || len(l.restartAll) > 0 || v.current(c.Name) != inst || !inst.Ended() || l.of(inst.ID).replaced || isInit(v.in.Pod, c.Name) {
		return
	}
	again, _ := l.after(v.in.Pod, inst)
	waits := c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	if waits && outdated(v, inst) {
		l.broken("%s was edited, and waits for its back-off", c.Name)
	}
	if again && v.in.Now.Before(l.due(v, inst)) && !waits {
		l.broken("%s waits for its back-off, and tells %v", c.Name, c.State)
	}
}

// phase follows the API's description of PodPhase. One that is final never changes while the
// pod is wanted.
func (l *laws) phase(s *sim, v *view) {
	st := v.d.Status
	if l.terminal != "" && st.Phase != l.terminal && (v.in.Stop == nil || s.disk != nil) { // CleanPod forgets it
		l.broken("phase %s follows %s, which is final", st.Phase, l.terminal)
	}
	if v.in.Stop != nil {
		l.object(s, v)
		return
	}
	l.keepsFinal(s, v)
	preempted := l.over == pod.ReasonPreempting && pod.Terminal(v.in.Pod.Status.Phase) == ""
	if l.cut && st.Phase == v1.PodSucceeded && !preempted && v.in.Pod.Status.Phase != v1.PodSucceeded {
		l.broken("a pod that had to end is %s", st.Phase)
	}
	toldBefore := l.status != nil && l.status.Phase == st.Phase // the runtime may have lost the records since
	if over := st.Phase == v1.PodSucceeded; l.cut && preempted && !l.rejected && !toldBefore && l.terminal == "" && pod.Terminal(st.Phase) != "" && over != (!l.fails && v.mains(func(c *v1.Container) bool {
		inst := v.newest(c.Name)
		return inst != nil && inst.Ended() && exitCode(inst) == 0
	})) {
		l.broken("a preempted pod is %s, and its containers have ended otherwise", st.Phase)
	}
	ran := func(c *v1.Container) bool {
		inst := v.newest(c.Name)
		return inst != nil && inst.State != pod.ContainerCreated
	}
	if len(l.restartAll) > 0 && v.mains(ran) && l.status != nil && l.status.Phase == v1.PodRunning && st.Phase == v1.PodPending {
		l.broken("the pod is %s as its containers are started anew", st.Phase)
	}
	switch st.Phase {
	case v1.PodSucceeded, v1.PodFailed:
		if pod.Terminal(v.in.Pod.Status.Phase) == "" {
			l.atEnd(s, v)
		}
	case v1.PodRunning:
		for i := range st.ContainerStatuses {
			if c := &st.ContainerStatuses[i]; c.State.Waiting != nil && c.RestartCount == 0 && c.LastTerminationState.Terminated == nil {
				l.broken("the pod is Running, and %s was never started", c.Name)
			}
		}
	default:
		if !v.ends && len(l.restartAll) == 0 && v.mains(func(c *v1.Container) bool {
			return v.runs(c.Name) && (!hasPostStart(c) || l.of(v.current(c.Name).ID).hookedNow)
		}) {
			l.broken("the pod is %s, and all its containers run", st.Phase)
		}
	}
}

// keepsFinal: a final status that is on disk is told from then on, by the next agent, too.
func (l *laws) keepsFinal(s *sim, v *view) {
	own := *v.d.Status
	own.Conditions = slices.DeleteFunc(slices.Clone(own.Conditions), func(c v1.PodCondition) bool { return !nodes(c.Type) })
	if s.disk != nil && s.disk.Final != nil && l.final == nil {
		l.final = &own
	}
	if l.final != nil && !equality.Semantic.DeepEqual(l.final, &own) {
		l.broken("the final status has changed: %s", cmp.Diff(l.final, &own))
	}
}

// object: a pod whose object is being deleted ends in a terminal phase, which is told once nothing of it runs, all
// containers are terminated, and the next agent will tell the very same; only then its volumes go, and only
// then its object may. Its containers and logs stay until it is gone.
func (l *laws) object(s *sim, v *view) {
	st := v.d.Status
	over := pod.Terminal(st.Phase) != ""
	runs := slices.ContainsFunc(v.observed(), func(c pod.Container) bool { return c.State == pod.ContainerRunning })
	if over && runs && pod.Terminal(v.in.Pod.Status.Phase) == "" && l.final == nil {
		l.broken("a stopping pod is %s, and something of it runs", st.Phase)
	}
	if !v.in.RequiresTerminalPhase {
		return
	}
	kept := s.disk != nil && s.disk.Final != nil
	if was := l.status; over && !kept && !v.unwritable() && l.terminal == "" && (was == nil || pod.Terminal(was.Phase) == "") && (s.disk == nil || s.disk.Terminal == "") {
		l.broken("a stopping pod is %s, and the next agent won't know that", st.Phase)
	}
	l.keepsFinal(s, v)
	for _, a := range v.d.Actions {
		if c := v.byID(a.ID); a.Kind == pod.RemoveContainer && c != nil && c.State == pod.ContainerCreated {
			continue // it never ran: it has neither an exit code nor a log
		}
		switch {
		case a.Kind == pod.RemoveContainer, a.Kind == pod.RemoveSandbox, a.Kind == pod.CleanPod, v.d.Gone && a.Kind != pod.SaveCheckpoint:
			l.broken("%s, and the object is still there", a.Kind)
		case a.Kind == pod.ReleaseVolumes && !over:
			l.broken("volumes are released, and the pod is %s", st.Phase)
		}
	}
	if !v.d.Gone {
		return
	}
	if !over || runs || s.mounted {
		l.broken("its object may go, and the pod is %s, runs: %v, has volumes: %v", st.Phase, runs, s.mounted)
	}
	for _, list := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].State.Terminated == nil && st.Phase != l.terminal {
				l.broken("its object may go, and %s is %v", list[i].Name, list[i].State)
			}
		}
	}
}

// admission: a pod that isn't admitted yet is Pending, and says what it waits for; one that is rejected
// fails, and has no container statuses, as it never had containers (API: PodPhase, PodStatus).
func (l *laws) admission(v *view) {
	st := v.d.Status
	if v.in.Stop != nil {
		return
	}
	told := len(st.InitContainerStatuses) + len(st.ContainerStatuses) + len(st.EphemeralContainerStatuses)
	if l.rejected {
		if st.Phase != v1.PodPending && st.Phase != v1.PodFailed || st.Phase == v1.PodFailed && told > 0 {
			l.broken("a rejected pod is %s and has %d container statuses", st.Phase, told)
		}
		return
	}
	f, waits := l.failed[effortOf(pod.Action{Kind: pod.AdmitPod})]
	if v.ends || l.mayRun(v) {
		return
	}
	if st.Phase != v1.PodPending {
		l.broken("a pod that isn't admitted is %s", st.Phase)
	}
	if waits && f.Wait != "" && !slices.ContainsFunc(v.d.Waits, func(w pod.Wait) bool { return w.Code == pod.WaitAdmission && w.For == f.Wait }) {
		l.broken("a pod waits for %s to be admitted, and doesn't say so", f.Wait)
	}
}

// atEnd: a phase that is final says that all containers have ended, and how.
func (l *laws) atEnd(s *sim, v *view) {
	st := v.d.Status
	if s.disk != nil && s.disk.Terminal != "" {
		l.terminal = st.Phase
	}
	if l.status == nil || l.status.Phase == st.Phase {
		return // it was told before
	}
	for i := range v.observed() {
		if c := &v.observed()[i]; c.State == pod.ContainerRunning {
			l.broken("the pod is %s while %s runs", st.Phase, c.ID)
		}
	}
	if !v.ends {
		l.broken("the pod is %s, and has neither run to its end nor to end", st.Phase)
	}
	v.mains(func(c *v1.Container) bool {
		if inst := v.current(c.Name); inst != nil && l.over == "" && l.of(inst.ID).renewed && inst.Image != c.Image {
			l.broken("the pod is %s, and %s was to be replaced", st.Phase, inst.ID)
		}
		return true
	})
	if st.Phase == v1.PodSucceeded && !l.well && l.over != pod.ReasonPreempting {
		l.broken("the pod is Succeeded, and not all its containers are")
	}
}

// conditions follow the containers; each is dated by when its status changed last
// (API: PodCondition.lastTransitionTime). Whether all containers are being started anew is told of each pod of which they may
// be (KEP-5532).
func (l *laws) conditions(v *view) {
	st := v.d.Status
	for i := range st.Conditions {
		c := &st.Conditions[i]
		if l.status == nil || l.final != nil || !nodes(c.Type) && condition(&v.in.Pod.Status, c.Type) != nil {
			continue // the first one told, or as it was written down, or of somebody else
		}
		was := condition(l.status, c.Type)
		want := v.in.Now
		if was != nil && was.Status == c.Status {
			want = was.LastTransitionTime.Time
		}
		changed := was == nil || was.Status != c.Status
		if drafted := changed && v.in.Stop != nil && pod.Terminal(st.Phase) != ""; drafted && !c.LastTransitionTime.After(v.in.Now) {
			continue // since the final status was made, which is told when it is on disk, or can't be written
		}
		if !c.LastTransitionTime.Time.Equal(want) {
			l.broken("condition %s is dated %s instead of %s", c.Type, c.LastTransitionTime.Format(time.TimeOnly), want.Format(time.TimeOnly))
		}
	}
	if mayAllRestart(v.in.Pod) && condition(st, v1.AllContainersRestarting) == nil {
		l.broken("condition %s isn't told, and the end of a container may have all started anew", v1.AllContainersRestarting)
	}
	fresh := v.mains(func(c *v1.Container) bool { _, ran := l.ran[c.Name]; return !ran && v.newest(c.Name) == nil })
	if waits := l.waitsFor(v, ""); waits != "" && fresh && !v.ends && len(l.restartAll) == 0 && isTrue(st, v1.PodInitialized) {
		l.broken("condition %s holds before %s", v1.PodInitialized, waits)
	}
	if isTrue(st, v1.PodInitialized) {
		l.toldInitialized = l.initialized
	}
	all := st.Phase == v1.PodRunning
	for i := range st.ContainerStatuses {
		all = all && st.ContainerStatuses[i].Ready
	}
	for i := range st.InitContainerStatuses {
		if c := &st.InitContainerStatuses[i]; isSidecar(v.in.Pod, c.Name) {
			all = all && c.Ready
		}
	}
	for _, typ := range [...]v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
		if isTrue(st, typ) && !all {
			l.broken("condition %s holds, and not all containers are ready", typ)
		}
	}
	if all && !isTrue(st, v1.ContainersReady) {
		l.broken("all containers are ready, and the pod isn't")
	}
	if isTrue(st, v1.PodReadyToStartContainers) && v.sandbox == "" {
		l.broken("condition %s holds without a sandbox", v1.PodReadyToStartContainers)
	}
	if pod.Terminal(v.in.Pod.Status.Phase) != "" && st.Reason != v.in.Pod.Status.Reason {
		l.broken("the source tells reason %q of the pod's end, and the node %q", v.in.Pod.Status.Reason, st.Reason)
	}
	if !l.cut || v.in.Stop != nil || pod.Terminal(v.in.Pod.Status.Phase) != "" {
		return
	}
	// Whoever reads of it takes the pod as ended.
	reason, disruption := "", false
	if st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed {
		reason, disruption = string(l.over), l.disruption
	}
	disruption = disruption || condition(&v.in.Pod.Status, v1.DisruptionTarget) != nil
	if st.Reason != reason {
		l.broken("a pod that has to end for %s is %s with reason %q", l.over, st.Phase, st.Reason)
	}
	if disruption != isTrue(st, v1.DisruptionTarget) {
		l.broken("condition %s of a pod that is %s doesn't tell whether the node has ended it", v1.DisruptionTarget, st.Phase)
	}
}

// nodes reports whether nobody but a node agent writes a condition.
func nodes(typ v1.PodConditionType) bool {
	switch typ {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady, v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}

// others: what others wrote into the pod's conditions stays as it is. The node writes DisruptionTarget with the
// terminal phase, and no sooner.
func (l *laws) others(v *view) {
	st := v.d.Status
	over := st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed
	for i := range v.in.Pod.Status.Conditions {
		c := &v.in.Pod.Status.Conditions[i]
		if now := condition(st, c.Type); !nodes(c.Type) && (now == nil || *now != *c) && !(c.Type == v1.DisruptionTarget && over && l.disruption) {
			l.broken("somebody's condition %s becomes %v", c.Type, now)
		}
	}
	if c := condition(st, v1.PodResizeInProgress); c != nil && c.ObservedGeneration != v.in.Allocation.Generation {
		l.broken("a resize to generation %d is told as of %d", v.in.Allocation.Generation, c.ObservedGeneration)
	}
	if c := condition(st, v1.DisruptionTarget); c != nil && c.Reason == v1.PodReasonTerminationByKubelet && !(over && l.disruption) &&
		condition(&v.in.Pod.Status, v1.DisruptionTarget) == nil {
		l.broken("the node tells a disruption of a pod that is %s", st.Phase)
	}
}
