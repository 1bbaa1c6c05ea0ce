package lifecycle_test

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// laws holds what must be true of every decision, whatever happens, and what was seen so
// far. A law reads what the core was told, what it asks for and what it tells: that which
// Kubernetes documents. It knows nothing of how the core comes to that.
type laws struct {
	problems []string
	// instances holds what is known of each instance by its ID, backoffs how long a
	// container waits after the end of the instance of a number.
	instances map[string]*instance
	backoffs  map[attempt]time.Duration
	// last holds each container's newest instance that ended, also once it was removed.
	last map[string]pod.Container
	// toldEnd is how each container was told to have ended, while it is told so.
	toldEnd map[string]*v1.ContainerStateTerminated
	// ran is the highest number of an instance that was seen as started.
	ran map[string]int
	// failed holds what failed and wasn't done since, asked the node's facts when each
	// action was begun last.
	failed map[effort]failure
	asked  map[effort]lifecycle.Node
	// pulled is the image that was made present last for each container.
	pulled map[string]string
	// initialized is the sandbox in which all init containers have succeeded and all sidecars been started, toldInitialized
	// the same once this agent has told so.
	initialized, toldInitialized string
	// restartAll holds the instances that have to go before any other container is made.
	restartAll map[string]bool
	// resumed says that the disk tells a new agent of that, meant which instances it means.
	resumed bool
	meant   []string
	// hopeless says that no main container is to be kept or started again, as the last one failed a probe, perhaps
	// that this may be so: one that ended may have been ended to be replaced.
	hopeless, perhaps bool
	// over says why the pod has to end though it is wanted, finished that it may have run to
	// its end, cut that it hadn't when it had to end.
	over          pod.Reason
	finished, cut bool
	// fails says that the pod has to end for a reason, perhaps beside others, after which it has failed however its containers end.
	fails bool
	// admitted says that this agent was told that the node lets the pod run, rejected that it never will.
	admitted, rejected bool
	// well says that all main containers have been seen as ended with success.
	well bool
	// longest is the longest grace that it was given to end.
	longest time.Duration
	// disruption says that the node has ended the pod for reasons of its own.
	disruption bool
	terminal   v1.PodPhase
	// final is the status that is told of a pod whose object is being deleted, once it is on disk.
	final *v1.PodStatus
	// stopBy is when the last of a pod that has to go is killed.
	stopBy time.Time
	// deadlineFrom is from when its deadline counts by the disk that this agent found; zero if from its start.
	deadlineFrom time.Time
	// together is when the grace is over of all that this agent ends with the pod; zero if it ends nothing so.
	together time.Time
	// ranDown says that a pod was to be ended, without a grace of its own, that had run to its end already, and whose containers each have
	// their own time: stopBy isn't kept then.
	ranDown bool
	// status is the one told before, generation that of the spec then.
	status     *v1.PodStatus
	generation int64
	// known is what a new agent hears from the pod's source of the status told before.
	known *v1.PodStatus
	// prepared says that the core knows the volumes as ready, released that they were to go.
	prepared, released bool
	// allowed is what the pod's control group allows, as far as set by this agent.
	allowed *pod.Allocation
	// stopped holds the sandboxes that this agent knows as stopped.
	stopped map[string]bool
	// base is the version that the disk knows the pod by (see lifecycle.Input.Base).
	base string
}

// instance is what is known of one instance of a container.
type instance struct {
	// failing says that a startup or liveness probe or the postStart hook of it failed.
	failing bool
	// hookFailed says that its postStart hook did, as this agent was told.
	hookFailed bool
	// hooked and started say that the postStart hook and the startup probe were told as done,
	// those with Now that this agent was told.
	hooked, hookedNow, started, startedNow, wasReady bool
	// replaced says that it was asked to end in a living pod without a failure: another
	// follows whatever the restart policy says, and at once.
	replaced bool
	// renewed says that its image was edited before it had ended that was asked to: another has to follow.
	renewed bool
	// condemned says that it was asked to end for a failed probe or postStart hook, and so has failed whatever its code.
	condemned bool
	// recorded is for which probe it was to be killed, and toRenew says that it was to be replaced, by the disk that this agent
	// found: the agent before may have signalled it.
	recorded pod.ProbeKind
	toRenew  bool
	// by is until when it may run by what was asked last; zero if this agent asked for nothing.
	by time.Time
	// ended is when it ended, as this agent first saw it; zero if that lay in the future.
	ended time.Time
	// recalled is by when it would have been killed whose stop was given up.
	recalled time.Time
	// preStopped says that the preStop hook has ended, preStoppedNow that this agent was told.
	preStopped, preStoppedNow bool
	// stopping says that it was asked to stop.
	stopping bool
	// carried says that it was removed for all to be started anew: what follows goes on from it.
	carried bool
}

// attempt names one instance of a container before it has an ID.
type attempt struct {
	container string
	n         int
}

// effort is an action without what differs from one try to the next.
type effort struct {
	kind   pod.ActionKind
	target string
}

func effortOf(a pod.Action) effort {
	if a.Kind == pod.CreateContainer {
		a.Kind = pod.StartContainer // making a container and starting it are one effort
	}
	return effort{a.Kind, a.Target()}
}

type failure struct {
	pod.Failure
	at    time.Time
	count int
	// about is the sandbox or instance that it is about, if there was one already, image that of the container.
	about, image string
}

func newLaws() laws {
	return laws{instances: map[string]*instance{}, backoffs: map[attempt]time.Duration{}, last: map[string]pod.Container{}, ran: map[string]int{}, toldEnd: map[string]*v1.ContainerStateTerminated{},
		failed: map[effort]failure{}, asked: map[effort]lifecycle.Node{}, stopped: map[string]bool{}, pulled: map[string]string{}}
}

// deadlineStart is from when the pod's deadline counted by the clock of the agent's start.
func (l *laws) deadlineStart(v *view) time.Time {
	if l.deadlineFrom.IsZero() {
		return v.d.Status.StartTime.Time
	}
	return l.deadlineFrom
}

func (l *laws) broken(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *laws) of(id string) *instance {
	i := l.instances[id]
	if i == nil {
		i = &instance{}
		l.instances[id] = i
	}
	return i
}

// clockStepped moves the times of the future with the clock, which was set.
func (l *laws) clockStepped(by time.Duration) {
	times := []*time.Time{&l.stopBy, &l.together}
	for _, i := range l.instances {
		times = append(times, &i.by, &i.recalled, &i.ended)
	}
	move := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	for _, t := range times {
		move(t)
	}
	for e, f := range l.failed {
		move(&f.at)
		move(&f.NotBefore)
		l.failed[e] = f
	}
}

// restarted forgets what a new agent can't know.
func (l *laws) restarted(disk *pod.Checkpoint) {
	for _, i := range l.instances {
		i.ended = time.Time{}
		i.by, i.recalled, i.stopping, i.failing, i.hookFailed = time.Time{}, time.Time{}, false, false, false
		i.hookedNow, i.startedNow, i.preStoppedNow, i.recorded, i.toRenew = false, false, false, "", false
	}
	clear(l.failed)
	clear(l.asked)
	clear(l.pulled)
	clear(l.stopped)
	l.cut, l.prepared, l.released, l.status, l.allowed, l.over, l.generation, l.stopBy, l.ranDown = false, false, false, nil, nil, "", 0, time.Time{}, false
	l.together = time.Time{}
	if disk != nil {
		l.stopBy, l.deadlineFrom = disk.EndBy, disk.DeadlineFrom
	} else {
		l.final, l.deadlineFrom = nil, time.Time{}
	}
	if l.known != nil && l.known.StartTime != nil {
		l.status = l.known
	}
	if disk == nil {
		disk = &pod.Checkpoint{}
	}
	for id, f := range disk.Failed {
		l.of(id).failing, l.of(id).hookFailed, l.of(id).recorded = true, f.Cause == pod.StopPostStartHook, f.Probe
	}
	for _, id := range disk.Renew {
		l.of(id).toRenew = true
	}
	for id, i := range l.instances { // nothing of that is lost but what can't be written
		i.renewed, i.condemned = i.renewed && slices.Contains(disk.Renew, id), i.condemned && disk.Failed[id].Cause != ""
	}
	l.admitted, l.rejected = false, disk.Termination != nil && disk.Termination.Rejected
	l.initialized, l.toldInitialized, l.hopeless, l.perhaps = "", "", false, false
	l.finished, l.base, l.resumed, l.meant = disk.Terminal != "", disk.Base, disk.RestartAll != nil, nil
	if l.resumed {
		l.meant = disk.RestartAll.IDs
	}
	clear(l.restartAll) // it finds out again, unless a new sandbox comes first
	maps.DeleteFunc(l.last, func(name string, c pod.Container) bool { return disk.Carried[name].Attempt <= c.Attempt })
	l.fails = false
	if e := disk.Termination; e != nil {
		l.end(*e)
		l.fails = !e.ByExit
	}
}

// judge looks at one decision, before its actions are begun.
func (l *laws) judge(s *sim, in *lifecycle.Input, d *lifecycle.Decision) {
	v := &view{in: in, d: d}
	if o := in.Observed; len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		v.sandbox = o.Sandboxes[0].ID
	}
	l.hear(v)
	for i, a := range d.Actions {
		l.oneAtATime(v, i, a)
		l.retried(v, a)
		l.starts(v, a)
		l.stops(v, a)
		l.onDisk(s, v, a)
		l.removes(v, a)
		l.volumes(v, a)
		l.resizes(s, v, a)
	}
	l.cancels(v)
	l.triggers(v)
	l.wakes(v)
	if in.Pod != nil {
		l.ending(v)
		l.atOnce(v)
		l.failing(v)
		l.begins(s, v)
		l.probes(v)
		l.statuses(s, v)
	}
	l.begun(v)
}

// hear takes in what the core is told with a decision.
func (l *laws) hear(v *view) {
	for _, r := range v.in.Results {
		l.result(v, r)
	}
	for i := range v.in.Probes {
		r := &v.in.Probes[i]
		switch inst := l.of(r.ID); {
		case r.Kind == pod.ProbeReadiness:
			inst.wasReady = inst.wasReady || r.OK
		case !r.OK:
			inst.failing = true
		case r.Kind == pod.ProbeStartup:
			inst.started, inst.startedNow = true, true
		}
	}
	if s := v.in.Stop; s != nil {
		grace := s.Grace
		if grace != nil { // preStop hooks run, however short it is
			least := max(*grace, time.Second)
			grace = &least
		}
		l.endBy(endsBy(v.in.Pod, v.onClock(s.At), grace))
	}
	if v.ends = v.in.Stop != nil; v.in.Pod == nil {
		return
	}
	for name := range pod.ContainerNames(v.in.Pod) {
		c := v.newest(name)
		if c != nil && c.State == pod.ContainerRunning {
			l.of(c.ID).ended = time.Time{}
		}
		if c == nil || !c.Ended() || !l.of(c.ID).ended.IsZero() {
			continue
		}
		if at := v.onClock(c.FinishedAt); at.Sub(v.in.Now) <= time.Minute {
			l.of(c.ID).ended = at
		}
	}
	if v.in.Pod.Generation != l.generation || v.in.Pod.Spec.Overhead != nil {
		l.generation = v.in.Pod.Generation
		maps.DeleteFunc(l.failed, func(e effort, f failure) bool {
			return f.about == "" && (f.image == "" || f.image != imageOf(v.in.Pod, e))
		})
	}
	if v.sandbox != "" {
		maps.DeleteFunc(l.failed, func(e effort, _ failure) bool { return e.kind == pod.CreateSandbox })
	}
	maps.DeleteFunc(l.failed, func(_ effort, f failure) bool { return f.about != "" && !v.has(f.about) })
	for i := range v.observed() {
		if c := &v.observed()[i]; c.State != pod.ContainerCreated {
			l.ran[c.Name] = max(l.ran[c.Name], c.Attempt)
		}
		switch c := &v.observed()[i]; {
		case c.State == pod.ContainerRunning:
			delete(l.failed, effortOf(pod.Action{Kind: pod.StartContainer, Container: c.Name}))
			delete(l.last, c.Name)
			if spec := pod.ContainerNamed(v.in.Pod, c.Name); spec != nil && edited(v.in.Pod, spec, c) {
				l.of(c.ID).replaced = true
			}
		case c.State == pod.ContainerCreated:
			delete(l.last, c.Name)
		case v.newest(c.Name) == c:
			// An older record that outlives the newest one in a restart of all containers says nothing.
			if last, ok := l.last[c.Name]; !ok || !l.of(last.ID).carried || last.Attempt <= c.Attempt {
				l.last[c.Name] = *c
			}
		}
	}
	if ph := pod.Terminal(v.in.Pod.Status.Phase); ph != "" {
		l.finished, l.terminal = true, ph
	} else if l.over == "" && !l.resumed && len(l.restartAll) == 0 {
		l.finish(v)
	}
	if e := v.in.Termination; e != nil {
		if v.in.Stop == nil {
			l.end(*e)
			l.fails = l.fails || !e.ByExit
		}
		if v.in.Stop == nil || e.Grace != nil { // a grace of its own counts for a pod that has to go, too
			l.endBy(endsBy(v.in.Pod, v.onClock(e.At), e.Grace))
			l.ranDown = l.finished && e.Grace == nil
		}
	}
	if after := v.in.Pod.Spec.ActiveDeadlineSeconds; after != nil && v.in.Stop == nil &&
		!v.in.Now.Before(l.deadlineStart(v).Add(v.stepped()+pod.Seconds(*after))) {
		l.end(pod.PodTermination{Reason: "DeadlineExceeded"})
	}
	l.all(v)
	l.giveUp(v)
	v.ends = v.ends || l.over != "" || l.finished || l.perhaps
	switch {
	case l.resumed || len(l.restartAll) > 0:
		if v.in.Stop == nil && l.over == "" && (l.hopeless || l.perhaps) {
			l.stopBy, l.together = time.Time{}, time.Time{} // it goes on after all
		}
		l.initialized, l.toldInitialized, l.hopeless, l.perhaps = "", "", false, false
	case v.sandbox != "" && l.waitsFor(v, "") == "":
		l.initialized = v.sandbox
	}
}

// imageOf is the image of the container that an effort is about.
func imageOf(p *v1.Pod, e effort) string {
	if c := pod.ContainerNamed(p, strings.TrimPrefix(e.target, "container/")); c != nil {
		return c.Image
	}
	return ""
}

// edited reports whether an instance may have to be replaced after an edit of its image or resources.
func edited(p *v1.Pod, spec *v1.Container, c *pod.Container) bool {
	return c.Image != "" && c.Image != spec.Image || len(spec.ResizePolicy) > 0 && p.Generation > 1
}

// result takes in what came of an action.
func (l *laws) result(v *view, r pod.Result) {
	a := r.Action
	switch {
	case r.Failure != nil && r.Failure.Wait == pod.WaitForProcesses && !r.Cancelled: // it couldn't begin, and has no result
		f := failure{Failure: *r.Failure, at: r.At, count: l.failed[effortOf(a)].count + 1, about: a.ID, image: a.Image}
		if a.Kind == pod.StartContainer {
			f.about = "" // the next try has another instance
		}
		l.failed[effortOf(a)] = f
		return
	case a.Kind == pod.PreStop:
		delete(l.failed, effortOf(a))
		l.of(a.ID).preStopped, l.of(a.ID).preStoppedNow = true, true
		return
	case r.Cancelled:
		return
	case r.Failure == nil:
		delete(l.failed, effortOf(a))
	case a.Kind == pod.PostStart:
		l.of(a.ID).failing, l.of(a.ID).hookFailed = true, true
		return
	case r.Failure.Rejected && v.in.Pod != nil:
		l.rejected = l.rejected || l.over == ""
		l.end(pod.PodTermination{Reason: r.Failure.Reason})
		return
	default:
		f := failure{Failure: *r.Failure, at: r.At, count: l.failed[effortOf(a)].count + 1, about: a.ID, image: a.Image}
		if f.Reason == "FailedMount" { // a volume came before the image
			f.image = ""
		}
		l.failed[effortOf(a)] = f
		return
	}
	switch a.Kind {
	case pod.AdmitPod:
		l.admitted = true
	case pod.PreparePod:
		l.prepared, l.allowed = true, a.PodResources
		if l.allowed == nil {
			l.allowed = v.in.Allocation
		}
	case pod.StopSandbox:
		l.stopped[a.ID] = true
	case pod.ResizePod:
		l.allowed = a.PodResources
	case pod.SaveCheckpoint:
		l.base = a.Checkpoint.Base
	case pod.EnsureImage:
		l.pulled[a.Container] = a.Image
	case pod.PostStart:
		l.of(a.ID).hooked, l.of(a.ID).hookedNow = true, true
	}
}

// endBy takes in when the last of a pod that has to end is killed: that only comes nearer.
func (l *laws) endBy(at time.Time) {
	if l.stopBy.IsZero() || at.Before(l.stopBy) {
		l.stopBy, l.ranDown = at, false
	}
}

// end takes in why the pod has to end though it is wanted: the first reason counts.
func (l *laws) end(e pod.PodTermination) {
	if e.Grace != nil {
		l.longest = max(l.longest, *e.Grace)
	}
	if l.over == "" {
		l.over, l.cut, l.disruption = e.Reason, !l.finished, e.Disruption
	}
}

// finish finds out whether the pod may have run to its end: no main container is started
// again, or an init container has failed for good.
func (l *laws) finish(v *view) {
	p := v.in.Pod
	lost := l.lost(v)
	stays := func(name string) bool {
		c := v.newest(name)
		if c == nil || !c.Ended() {
			return lost && v.never(name) && (c == nil || c.State == pod.ContainerCreated) && !isInit(p, name)
		}
		again, _ := l.after(p, c)
		return !again
	}
	l.finished = l.finished || v.mains(func(c *v1.Container) bool { return stays(c.Name) })
	l.well = l.well || v.mains(func(c *v1.Container) bool {
		return stays(c.Name) && v.newest(c.Name) != nil && v.newest(c.Name).Ended() && exitCode(v.newest(c.Name)) == 0
	})
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if !pod.IsSidecar(c) && stays(c.Name) && exitCode(v.newest(c.Name)) != 0 {
			l.finished = true
		}
	}
}

// lost reports whether the pod isn't begun anew in another sandbox: with restartPolicy Never, after a container of it had
// begun (kubernetes/kubernetes#35309, #79451).
func (l *laws) lost(v *view) bool {
	for name := range pod.ContainerNames(v.in.Pod) {
		if c := v.newest(name); c != nil && c.Ended() {
			if _, all := l.after(v.in.Pod, c); all {
				return false // it asks for a restart of all
			}
		}
	}
	return v.in.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && v.sandbox == "" && slices.ContainsFunc(v.observed(), func(c pod.Container) bool {
		return c.Ended() && !isEphemeral(v.in.Pod, c.Name) && v.newest(c.Name) != nil && v.newest(c.Name).ID == c.ID
	})
}

// giveUp finds out whether the pod ends as a whole: the last main container failed its startup or liveness probe, and
// isn't started again whatever its exit code (Pod Lifecycle, "Types of probe": it is subjected to its restart policy).
func (l *laws) giveUp(v *view) {
	if l.perhaps && v.in.Stop == nil && l.over == "" && !v.mains(func(c *v1.Container) bool { return !v.runs(c.Name) || v.current(c.Name).Image == c.Image }) {
		l.perhaps, l.hopeless, l.stopBy, l.together = false, false, time.Time{}, time.Time{} // the edit decides
	}
	if v.ends || l.over != "" || l.finished || l.hopeless || l.resumed || len(l.restartAll) > 0 {
		return
	}
	failed, unsure := false, false
	may := v.mains(func(c *v1.Container) bool {
		if v.runs(c.Name) {
			_, probe := l.probeGrace(v, v.current(c.Name))
			failed, unsure = failed || probe, unsure || l.of(v.current(c.Name).ID).replaced
			return (probe || l.of(v.current(c.Name).ID).hookFailed) && v.never(c.Name)
		}
		inst := v.newest(c.Name)
		if inst == nil || !inst.Ended() {
			return false
		}
		again, _ := l.after(v.in.Pod, inst)
		unsure = unsure || l.of(inst.ID).replaced
		return !again
	}) && failed
	l.perhaps, l.hopeless = l.perhaps || may, may && !unsure
	if l.hopeless {
		l.stopBy = v.in.Now.Add(podGrace(v.in.Pod))
	}
}

// all finds out whether a container asks that all are started anew, and which instances
// have to go for that.
func (l *laws) all(v *view) {
	for id := range l.restartAll {
		if !slices.ContainsFunc(v.observed(), func(c pod.Container) bool { return c.ID == id }) {
			delete(l.restartAll, id)
		}
	}
	if v.in.Stop != nil || l.over != "" || len(l.restartAll) > 0 {
		return
	}
	// Instances that came after the restart don't go for a record of it that couldn't be cleared.
	l.resumed = l.resumed && slices.ContainsFunc(v.observed(), func(c pod.Container) bool { return slices.Contains(l.meant, c.ID) })
	asks := l.resumed
	for name := range pod.ContainerNames(v.in.Pod) {
		if c := v.current(name); c != nil && c.Ended() {
			if _, all := l.after(v.in.Pod, c); all {
				asks = true
			}
		}
	}
	if !asks {
		return
	}
	l.restartAll = map[string]bool{}
	for i := range v.observed() {
		if c := &v.observed()[i]; !isEphemeral(v.in.Pod, c.Name) && !abortedStart(c) {
			l.restartAll[c.ID] = true
		}
	}
	l.resumed = false
}

// begun takes in what a decision begins.
func (l *laws) begun(v *view) {
	for _, a := range v.d.Actions {
		l.asked[effortOf(a)] = v.in.Node
		switch a.Kind {
		case pod.CreateContainer:
			l.backoffs[attempt{a.Container, a.Attempt}] = l.nextBackoff(v, a)
		case pod.PreStop, pod.StopContainer:
			i := l.of(a.ID)
			if by := v.in.Now.Add(a.Grace); i.by.IsZero() && l.endsAll(v) && (l.together.IsZero() || by.Before(l.together)) {
				l.together = by
			}
			i.by, i.recalled = v.in.Now.Add(a.Grace), time.Time{}
			i.stopping = i.stopping || a.Kind == pod.StopContainer
			i.replaced = i.replaced || !v.ends && !i.failing
			if c := v.byID(a.ID); v.in.Pod != nil && !v.ends && v.current(a.Container) == c && v.isLongRunning(a.Container) && len(l.restartAll) == 0 {
				_, probe := l.probeGrace(v, c)
				i.renewed = i.renewed || c.Image != pod.ContainerNamed(v.in.Pod, a.Container).Image
				i.condemned = i.condemned || probe || i.hookFailed
			}
		case pod.SaveCheckpoint:
			l.saved(v, a.Checkpoint)
		case pod.RemoveContainer:
			l.of(a.ID).carried = l.restartAll[a.ID]
		case pod.PreparePod:
			l.prepared = false
		case pod.ReleaseVolumes:
			l.prepared, l.released = false, true
		}
	}
	l.renews(v)
	for _, a := range v.in.InFlight {
		if a.Kind == pod.StopContainer && slices.Contains(v.d.Cancel, a.Target()) {
			l.of(a.ID).recalled = l.of(a.ID).by
		}
	}
}

// renews takes in whose image is edited while they are being ended in a pod that goes on.
func (l *laws) renews(v *view) {
	if v.in.Pod == nil || v.in.Stop != nil || l.over != "" || l.finished || l.hopeless || len(l.restartAll) > 0 || !l.prepared || v.busy("pod") || l.base != v.in.Base {
		return
	}
	for c := range v.longRunning {
		if inst := v.current(c.Name); v.runs(c.Name) && inst.Image != c.Image && !l.of(inst.ID).by.IsZero() {
			l.of(inst.ID).renewed = true
		}
	}
}

// saved: nothing is written down of instances that aren't there any more.
func (l *laws) saved(v *view, k *pod.Checkpoint) {
	for _, ids := range [...][]string{k.PostStartDone, k.Started, k.Ready, k.Renew, k.Resizing} {
		for _, id := range ids {
			if v.byID(id) == nil {
				l.broken("%s is written down and isn't there", id)
			}
		}
	}
}

// oneAtATime: at most one action is under way on a target.
func (l *laws) oneAtATime(v *view, i int, a pod.Action) {
	for _, list := range [...][]pod.Action{v.in.InFlight, v.d.Actions[:i]} {
		for j := range list {
			if a.Target() == list[j].Target() {
				l.broken("%s begun while %s is under way on %s", a.Kind, list[j].Kind, a.Target())
			}
		}
	}
}

// retried: what failed is tried again after a while, the pull of an image (but not a volume before it) after 10 s at first,
// then after twice as long each time, up to 300 s (Images, "ImagePullBackOff"). It may be
// sooner once what it waited for may have come.
func (l *laws) retried(v *view, a pod.Action) {
	f, ok := l.failed[effortOf(a)]
	if !ok {
		return
	}
	was, now := l.asked[effortOf(a)], &v.in.Node
	wait, news := time.Second, false
	switch {
	case f.Awaits != (pod.Object{}) && now.ObjectsAt.After(was.ObjectsAt):
		return
	case a.Kind == pod.EnsureImage && f.Reason != "FailedMount":
		news = now.ImagesAt.After(was.ImagesAt)
		wait = min(10*time.Second<<min(f.count-1, 5), 300*time.Second)
	case a.Kind == pod.AdmitPod:
		news = now.ResourcesFreedAt.After(was.ResourcesFreedAt)
	case a.Kind == pod.Allocate:
		news = now.ResourcesFreedAt.After(was.ResourcesFreedAt)
		wait = 10 * time.Second
	}
	due := f.at.Add(wait)
	if !f.NotBefore.IsZero() {
		due = f.NotBefore
	}
	if v.in.Now.Before(due) && !news && f.Reason != "ImageInspectError" {
		l.broken("%s of %s is tried again %s too soon", a.Kind, a.Target(), due.Sub(v.in.Now))
	}
}

// triggers: what waits for an object is tried again as soon as objects have changed, and a pod
// that waits to be admitted as soon as there may be room for it.
func (l *laws) triggers(v *view) {
	if v.ends || l.resumed || len(l.restartAll) > 0 {
		return
	}
	for e, f := range l.failed {
		if e.kind == pod.PreparePod && f.Awaits != (pod.Object{}) && v.in.Node.ObjectsAt.After(l.asked[e].ObjectsAt) && !v.busy(e.target) {
			l.broken("%s waits for %s, and isn't tried again though objects have changed", e.kind, f.Awaits)
		}
		if e.kind == pod.AdmitPod && !l.mayRun(v) && v.in.Node.ResourcesFreedAt.After(l.asked[e].ResourcesFreedAt) && !v.busy(e.target) {
			l.broken("the pod waits to be admitted, and isn't judged again though resources were given back")
		}
	}
}

// world looks at what is there after a decision, and at what stays of it.
func (l *laws) world(s *sim) {
	alive := map[string]int{}
	for _, c := range s.obs.Containers {
		if c.State == pod.ContainerRunning || s.lost[c.ID] {
			alive[c.Name]++
		}
	}
	for name, n := range alive {
		if n > 1 {
			l.broken("%d running instances of %s", n, name)
		}
	}
	if len(alive) > 0 && !s.mounted {
		l.broken("containers run without their volumes")
	}
	live := 0
	for _, b := range s.obs.Sandboxes {
		if b.State == pod.SandboxReady {
			live++
		}
	}
	if live > 1 {
		l.broken("%d live sandboxes", live)
	}
	if s.last.Status != nil {
		l.pruned(s)
	}
	// What the runtime doesn't know any more has no grace: it ends with its sandbox.
	runs := slices.ContainsFunc(s.obs.Containers, func(c pod.Container) bool { return c.State == pod.ContainerRunning })
	if runs && s.stop != nil && s.object && s.pod != nil {
		l.endIsKept(s)
	}
}

// endIsKept: by when a pod has to end whose source still has it is on disk, or about to be: the next agent gives it no longer.
func (l *laws) endIsKept(s *sim) {
	failed := slices.ContainsFunc(s.last.Waits, func(w pod.Wait) bool { return w.Action == pod.SaveCheckpoint })
	writing := slices.ContainsFunc(s.inFlight, func(a pod.Action) bool { return a.Kind == pod.SaveCheckpoint })
	if !failed && !writing && !l.ranDown && (s.disk == nil || s.disk.EndBy.After(l.stopBy)) {
		l.broken("nobody would know after a restart that the pod ends by %s", l.stopBy)
	}
}

// pruned: nothing is remembered of what isn't there any more.
func (l *laws) pruned(s *sim) {
	known := map[string]bool{}
	for _, b := range s.obs.Sandboxes {
		known[b.ID] = true
	}
	for _, c := range s.obs.Containers {
		known[c.ID] = true
	}
	var failed map[string]pod.Failed
	if s.mem.Checkpoint != nil {
		failed = s.mem.Checkpoint.Failed
	}
	for _, ids := range []iter.Seq[string]{maps.Keys(s.mem.Stopped), maps.Keys(s.mem.Kills), maps.Keys(s.mem.Ended), maps.Keys(failed)} {
		for id := range ids {
			if !known[id] {
				l.broken("%s is remembered and isn't there", id)
			}
		}
	}
	for key, r := range s.mem.Retries {
		if r.ID != "" && !known[r.ID] {
			l.broken("the failure of %s is remembered, and %s isn't there", key, r.ID)
		}
	}
}

// wakes: a pod that isn't where it should be waits for an action that is under way, for a
// time, or for an object that it names; and it says so.
func (l *laws) wakes(v *view) {
	d := v.d
	if !d.Wake.IsZero() && !d.Wake.After(v.in.Now) {
		l.broken("wakes at once, for ever")
	}
	idle := len(v.in.InFlight)+len(d.Actions) == 0
	if v.in.Stop != nil {
		if idle && d.Wake.IsZero() && !d.Done && !d.Gone {
			l.broken("a stopping pod waits for nothing")
		}
		return
	}
	if d.Status == nil || d.Status.Phase == v1.PodSucceeded || d.Status.Phase == v1.PodFailed || isTrue(d.Status, v1.PodReady) {
		return
	}
	if len(d.Waits) == 0 {
		l.broken("neither up nor ended, and no reason is given")
	}
	if _, waits := l.failed[effortOf(pod.Action{Kind: pod.AdmitPod})]; waits && idle && !l.mayRun(v) && d.Wake.IsZero() {
		l.broken("the pod waits to be admitted, and nothing wakes it")
	}
	for i := range d.Status.ContainerStatuses {
		c := &d.Status.ContainerStatuses[i]
		if w := c.State.Waiting; idle && w != nil && w.Reason == "CrashLoopBackOff" && v.current(c.Name) != nil &&
			(d.Wake.IsZero() || d.Wake.Sub(v.in.Now) > cmp.Or(v.in.Node.MaxBackoff, 300*time.Second)+time.Minute) {
			l.broken("%s waits for its back-off, and nothing wakes the pod at its end", c.Name)
		}
	}
}
