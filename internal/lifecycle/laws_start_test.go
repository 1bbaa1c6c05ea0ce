package lifecycle_test

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// starts holds the laws of what begins containers.
func (l *laws) starts(v *view, a pod.Action) {
	switch a.Kind {
	case pod.StopContainer, pod.StopSandbox, pod.RemoveContainer, pod.RemoveSandbox, pod.ReleaseVolumes, pod.CleanPod,
		pod.PreStop, pod.SaveCheckpoint, pod.Allocate, pod.ResizePod, pod.ResizeContainer:
		return
	}
	switch {
	case v.in.Stop != nil:
		l.broken("%s begun after the pod was to stop", a.Kind)
	case l.over != "":
		l.broken("%s begun after the pod had to end: %s", a.Kind, l.over)
	case l.hopeless:
		l.broken("%s begun in a pod of which nothing is to be kept or started again", a.Kind)
	case l.status != nil && l.terminal != "":
		l.broken("%s begun after phase %s", a.Kind, l.terminal)
	case a.Kind != pod.AdmitPod && !l.mayRun(v):
		l.broken("%s begun before the pod was admitted", a.Kind)
	}
	switch a.Kind {
	case pod.AdmitPod:
		if l.mayRun(v) {
			l.broken("%s of a pod that was admitted", a.Kind)
		}
	case pod.CreateSandbox:
		l.sandboxes(v)
		if l.base != v.in.Base {
			l.broken("%s begun before it is on disk of which pod of its UID", a.Kind)
		}
	case pod.PostStart:
		if i := l.of(a.ID); i.hookedNow || i.failing {
			l.broken("the postStart hook of %s runs again", a.ID)
		}
	case pod.StartContainer:
		l.anew(v, a)
		c := v.current(a.Container)
		if c == nil || c.ID != a.ID || c.State != pod.ContainerCreated {
			l.broken("%s is started, and isn't the newest instance in the live sandbox, or not one that never ran", a.ID)
		} else if spec := pod.ContainerNamed(v.in.Pod, a.Container); spec != nil && c.Image != "" && c.Image != spec.Image {
			l.broken("%s is started with image %s instead of %s", a.ID, c.Image, spec.Image)
		}
	case pod.CreateContainer:
		l.creates(v, a)
	}
}

// mayRun reports whether the node lets the pod run: it said so, or an agent had begun to run it already.
func (l *laws) mayRun(v *view) bool {
	return l.admitted || v.in.Allocation != nil || !v.in.Observed.Empty()
}

// creates: a container is made when its turn has come, from the image that the spec asks
// for, in the live sandbox, with a number that no instance had.
func (l *laws) creates(v *view, a pod.Action) {
	spec := pod.ContainerNamed(v.in.Pod, a.Container)
	if spec == nil {
		l.broken("%s is made, and isn't in the spec", a.Container)
		return
	}
	if a.SandboxID != v.sandbox || v.sandbox == "" {
		l.broken("%s is made in sandbox %q, %q is live", a.Container, a.SandboxID, v.sandbox)
	}
	if pulled := l.pulled[a.Container]; pulled != spec.Image {
		l.broken("%s is made from image %q, the spec asks for %q", a.Container, pulled, spec.Image)
	}
	for i := range v.observed() {
		if c := &v.observed()[i]; c.Name == a.Container && c.Attempt == a.Attempt {
			l.broken("%s is made with number %d, which %s has", a.Container, a.Attempt, c.ID)
		}
	}
	if c := v.newest(a.Container); c != nil && a.Attempt > c.Attempt+1 && l.status != nil && l.ran[a.Container] < a.Attempt-1 {
		l.broken("%s is made with number %d after %d", a.Container, a.Attempt, c.Attempt)
	}
	if l.status != nil {
		if was := of(l.status, a.Container); was != nil && a.Attempt < int(was.RestartCount) {
			l.broken("%s is made with number %d, and a restart count of %d was told", a.Container, a.Attempt, was.RestartCount)
		}
	}
	l.granted(v, a, spec)
	l.anew(v, a)
	l.order(v, a)
	l.policy(v, a)
	l.backedOff(v, a)
}

// of is the status of a container; nil if there is none.
func of(st *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// granted: a container gets the resources that the node has granted (KEP-1287).
func (l *laws) granted(v *view, a pod.Action, spec *v1.Container) {
	if v.in.Allocation == nil {
		return
	}
	gets := &spec.Resources
	if a.Resources != nil {
		gets = a.Resources
	}
	if granted, ok := v.in.Allocation.Containers[a.Container]; ok && !allocated.Same(granted, *gets) {
		l.broken("%s is made with other resources than granted", a.Container)
	}
}

// anew: when all containers are restarted, each is gone before the first is made (KEP-5532).
func (l *laws) anew(v *view, a pod.Action) {
	if len(l.restartAll) > 0 && !isEphemeral(v.in.Pod, a.Container) {
		l.broken("%s of %s begun while containers are there that are to be started anew", a.Kind, a.Container)
	}
}

// order: init containers run one after the other until each has succeeded; a sidecar has
// to be started once, with its postStart hook and startup probe, before the next begins; then
// main containers come, of which one begins after the postStart hooks of those before it (Init
// Containers; Sidecar Containers). An ephemeral container waits for its target.
func (l *laws) order(v *view, a pod.Action) {
	spec := &v.in.Pod.Spec
	for i := range spec.EphemeralContainers {
		if e := &spec.EphemeralContainers[i]; e.Name == a.Container {
			if t := e.TargetContainerName; t != "" && !v.runs(t) {
				l.broken("%s is made before its target %s runs", a.Container, t)
			}
			return
		}
	}
	if j := slices.IndexFunc(spec.Containers, func(c v1.Container) bool { return c.Name == a.Container }); j > 0 {
		for i := range spec.Containers[:j] {
			c := &spec.Containers[i]
			if v.runs(c.Name) && hasPostStart(c) && !l.of(v.current(c.Name).ID).hooked && !l.of(v.current(c.Name).ID).failing {
				l.broken("%s is made before the postStart hook of %s is done", a.Container, c.Name)
			}
		}
	}
	if waits := l.waitsFor(v, a.Container); waits != "" {
		l.broken("%s is made before %s", a.Container, waits)
	}
}

// waitsFor says what is still to happen of the pod's initialization before a container, empty for a main one, may be
// made; empty for nothing. Of the init containers and sidecars that are there the last one tells how far it has come.
func (l *laws) waitsFor(v *view, name string) string {
	if l.initialized == v.sandbox || !v.mains(func(c *v1.Container) bool { return v.current(c.Name) == nil }) {
		return "" // past its initialization
	}
	list := v.in.Pod.Spec.InitContainers
	if i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
		list = list[:i]
	}
	for i := range list {
		c := &list[i]
		inst := v.current(c.Name)
		switch {
		case v.reached(i + 1):
		case !pod.IsSidecar(c):
			if inst == nil || !inst.Ended() || exitCode(inst) != 0 {
				return "init container " + c.Name + " succeeded"
			}
		case inst == nil || inst.State != pod.ContainerRunning || !l.started(c, inst):
			return "sidecar " + c.Name + " is started"
		}
	}
	return ""
}

// begins: once the initialization was told as over, main containers begin, also while a sidecar is down.
func (l *laws) begins(s *sim, v *view) {
	if s.disk != nil && s.disk.RestartAll != nil {
		// It is initialized once more, whatever is left of the container that wanted it. It may have been by now, where that can't be written down.
		l.toldInitialized = ""
	}
	if v.ends || v.sandbox == "" || l.toldInitialized != v.sandbox || !l.prepared || v.busy("pod") || l.base != v.in.Base ||
		v.in.Pod.Spec.Overhead != nil { // see hear: with one, failures aren't known
		return
	}
	main := v.in.Pod.Spec.Containers[0].Name
	elsewhere := func(c pod.Container) bool {
		return c.State == pod.ContainerRunning && c.SandboxID != v.sandbox || c.Name == main
	}
	_, pulls := l.failed[effort{pod.EnsureImage, "container/" + main}]
	_, starts := l.failed[effort{pod.StartContainer, "container/" + main}]
	fresh := v.mains(func(c *v1.Container) bool { _, ended := l.last[c.Name]; return !ended })
	starting := slices.ContainsFunc(v.in.InFlight, func(a pod.Action) bool { return a.Container != "" })
	if fresh && !pulls && !starts && !starting && !v.busy("container/"+main) && !slices.ContainsFunc(v.observed(), elsewhere) {
		l.broken("the initialization is over, and %s isn't begun", main)
	}
}

// started reports whether a running instance is started (API: ContainerStatus.started).
func (l *laws) started(c *v1.Container, inst *pod.Container) bool {
	i := l.of(inst.ID)
	return (c.StartupProbe == nil || i.started) && (!hasPostStart(c) || i.hooked)
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }

// policy: a container that ended is started again only if the restart policy says so, or
// if it was ended to be replaced. An init container that succeeded runs again only in
// another sandbox, an ephemeral one never.
func (l *laws) policy(v *view, a pod.Action) {
	c := v.newest(a.Container)
	if isInit(v.in.Pod, a.Container) && !v.mains(func(m *v1.Container) bool { return v.current(m.Name) == nil }) {
		l.broken("init container %s runs again after the pod's initialization", a.Container)
	}
	if isInit(v.in.Pod, a.Container) && v.reached(1+slices.IndexFunc(v.in.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == a.Container })) {
		l.broken("init container %s runs again after one that follows it", a.Container)
	}
	if c == nil || c.State == pod.ContainerCreated {
		return
	}
	if isEphemeral(v.in.Pod, a.Container) {
		l.broken("ephemeral container %s runs again", a.Container)
	}
	if l.of(c.ID).replaced || isInit(v.in.Pod, a.Container) && c.SandboxID != v.sandbox {
		return
	}
	if again, _ := next(v.in.Pod, a.Container, exitCode(c), l.of(c.ID).failing); !again {
		l.broken("%s is started again after exit code %d", a.Container, exitCode(c))
	}
}

// ended is the instance whose back-off the next one of a container goes on from: the newest,
// also if it was removed for all to be started anew; nil if there is none that counts.
func (l *laws) ended(v *view, name string) *pod.Container {
	if c := v.newest(name); c != nil {
		if c.Ended() {
			return c
		}
		return nil
	}
	if c, ok := l.last[name]; ok && l.of(c.ID).carried {
		return &c
	}
	return nil
}

// backoff is how long a restart waits after an instance's end (Pod Lifecycle, "Container
// restarts"): the first one not at all, then 10 s, twice as long each time up to 300 s, and
// as at first after one that ran for ten minutes. It is that of one version of the container: an edit of its image or
// resources ends it.
func (l *laws) backoff(v *view, c *pod.Container) time.Duration {
	if l.of(c.ID).replaced || outdated(v, c) || !c.StartedAt.IsZero() && v.onClock(c.FinishedAt).Sub(v.onClock(c.StartedAt)) >= 10*time.Minute {
		return 0
	}
	return min(l.backoffs[attempt{c.Name, c.Attempt}], cmp.Or(v.in.Node.MaxBackoff, 300*time.Second))
}

// outdated reports whether an instance was made from another image, or with other resources, than the next one.
func outdated(v *view, c *pod.Container) bool {
	spec := pod.ContainerNamed(v.in.Pod, c.Name)
	if c.Image != spec.Image || v.in.Allocation == nil {
		return c.Image != spec.Image
	}
	return !allocated.Same(*c.CreatedWith.Resources, v.in.Allocation.Containers[c.Name])
}

// nextBackoff is that after the end of the instance that is made now.
func (l *laws) nextBackoff(v *view, a pod.Action) time.Duration {
	c := l.ended(v, a.Container)
	if c == nil || l.of(c.ID).replaced || outdated(v, c) {
		return 0
	}
	if l.of(c.ID).carried {
		return l.backoff(v, c)
	}
	return min(cmp.Or(2*l.backoff(v, c), v.in.Node.FirstBackoff, 10*time.Second), cmp.Or(v.in.Node.MaxBackoff, 300*time.Second))
}

// due is when the next instance may be made after the end of this one. A restart of all containers waits for nothing.
func (l *laws) due(v *view, c *pod.Container) time.Time {
	wait := l.backoff(v, c)
	ended := l.of(c.ID).ended
	if ended.IsZero() {
		ended = v.onClock(c.FinishedAt)
	}
	if wait == 0 || ended.Sub(v.in.Now) > time.Minute || l.of(c.ID).carried || isInit(v.in.Pod, c.Name) && exitCode(c) == 0 {
		return time.Time{} // the clock was set back, or it didn't fail by itself
	}
	return ended.Add(wait)
}

// backedOff: no container is started again before its back-off is over, and one that was edited begins anew.
func (l *laws) backedOff(v *view, a pod.Action) {
	c := l.ended(v, a.Container)
	if c == nil {
		return
	}
	if v.newest(a.Container) != nil && outdated(v, c) && a.Backoff > 0 {
		l.broken("%s was edited, and goes on with a back-off of %s", a.Container, a.Backoff)
	}
	if due := l.due(v, c); v.in.Now.Before(due) {
		l.broken("%s is started again %s before its back-off of %s is over", a.Container, due.Sub(v.in.Now), l.backoff(v, c))
	}
}

// sandboxes: there is one at a time, and what ran in the one before has ended. One that ended right after it was
// made isn't followed at once: that would go on without end.
func (l *laws) sandboxes(v *view) {
	for i := range v.observed() {
		if c := &v.observed()[i]; c.State == pod.ContainerRunning {
			l.broken("a sandbox is made while %s runs", c.ID)
		}
	}
	if l.over == "" && l.lost(v) && v.mains(func(c *v1.Container) bool { return v.newest(c.Name) == nil && v.never(c.Name) }) {
		l.broken("a sandbox is made, and its pod isn't begun anew")
	}
	boxes := v.in.Observed.Sandboxes
	for i := range boxes {
		if !l.stopped[boxes[i].ID] {
			l.broken("a sandbox is made before %s is stopped, which frees its network", boxes[i].ID)
		}
	}
	if len(boxes) > 0 {
		if age := v.in.Now.Sub(boxes[0].CreatedAt); age >= 0 && age < time.Second {
			l.broken("a sandbox is made %s after the one before", age)
		}
	}
}

// volumes: they are there before the first container is made, and go when none is left that
// could use them: the last one has ended, and none is being made or follows.
func (l *laws) volumes(v *view, a pod.Action) {
	switch a.Kind {
	case pod.PreparePod:
		if l.released {
			l.broken("the volumes are made again")
		}
	case pod.CreateContainer, pod.StartContainer:
		if !l.prepared {
			l.broken("%s without volumes", a.Kind)
		}
	case pod.CleanPod:
		if len(v.observed()) > 0 || len(v.in.Observed.Sandboxes) > 0 {
			l.broken("CleanPod while there are containers or sandboxes")
		}
	case pod.ReleaseVolumes:
		for i := range v.in.Observed.Sandboxes {
			if id := v.in.Observed.Sandboxes[i].ID; !l.stopped[id] {
				l.broken("ReleaseVolumes before sandbox %s is stopped", id)
			}
		}
	default:
		return
	}
	if a.Kind != pod.ReleaseVolumes && a.Kind != pod.CleanPod {
		return
	}
	for _, list := range [...][]pod.Action{v.in.InFlight, v.d.Actions} {
		for _, b := range list {
			switch b.Kind {
			case pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PreparePod, pod.PostStart:
				l.broken("%s while %s is under way", a.Kind, b.Kind)
			case pod.EnsureImage: // which mounts the volumes of a container that was added
				if v.in.Pod != nil && isEphemeral(v.in.Pod, b.Container) {
					l.broken("%s while the volumes of %s may be mounted", a.Kind, b.Container)
				}
			}
		}
	}
}

// resizes: a running container gets what it was granted, in place unless its resizePolicy
// asks for a restart; the pod's control group allows that before (KEP-1287).
func (l *laws) resizes(s *sim, v *view, a pod.Action) {
	if a.Kind != pod.ResizeContainer {
		return
	}
	c, spec := v.current(a.Container), pod.ContainerNamed(v.in.Pod, a.Container)
	if c == nil || c.ID != a.ID || c.State != pod.ContainerRunning {
		l.broken("%s is resized and doesn't run", a.ID)
		return
	}
	if granted := v.in.Allocation.Containers[a.Container]; !allocated.Same(granted, *a.Resources) {
		l.broken("%s is resized to other resources than granted", a.Container)
	}
	if l.allowed == nil || !allocated.Equal(allocated.Most(l.allowed, v.in.Allocation), l.allowed) {
		l.broken("%s is resized before its pod's control group allows that", a.Container)
	}
	if !v.isLongRunning(a.Container) {
		l.broken("%s is resized, and is no main container or sidecar", a.Container)
	}
	if slices.ContainsFunc(spec.ResizePolicy, func(p v1.ContainerResizePolicy) bool { return p.RestartPolicy == v1.RestartContainer }) &&
		!allocated.Same(s.resources[c.ID], *a.Resources) {
		l.broken("%s is resized in place, its resizePolicy asks for a restart", a.Container)
	}
}
