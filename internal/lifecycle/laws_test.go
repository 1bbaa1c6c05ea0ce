package lifecycle_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// laws holds what must never be, whatever happens, and what it has seen so far.
type laws struct {
	problems []string
	// by is until when each instance that was asked to end may run.
	by map[string]time.Time
	// recalled is by when those would have been killed whose stop was given up, to be
	// asked again.
	recalled map[string]time.Time
	terminal v1.PodPhase
	// prepared says that the core knows the volumes as ready, over that they were to go.
	prepared, over bool
	// restarts are the restart counts told last.
	restarts map[string]int32
}

func newLaws() laws {
	return laws{by: map[string]time.Time{}, recalled: map[string]time.Time{}, restarts: map[string]int32{}}
}

func (l *laws) broken(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// restarted forgets what a new agent can't know: when the old one asked a
// container to end.
func (l *laws) restarted() {
	clear(l.by)
	clear(l.recalled)
	l.prepared, l.over = false, false
	clear(l.restarts) // they go on from logs on disk, which aren't played here
}

// extension is the one extension of a grace that Kubernetes knows: for a
// container whose preStop hook, or whose turn as a sidecar, used it up.
const extension = 2 * time.Second

// begun looks at what a decision begins.
func (l *laws) begun(s *sim, d lifecycle.Decision) {
	for i, a := range d.Actions {
		for _, b := range append(slices.Clone(s.inFlight), d.Actions[:i]...) {
			if a.Target() == b.Target() {
				l.broken("%s begun while %s is under way on %s", a.Kind, b.Kind, a.Target())
			}
		}
		switch a.Kind {
		case pod.PreStop, pod.StopContainer:
			until := s.now.Add(a.Grace)
			if by, ok := l.by[a.ID]; ok && until.After(by) && a.Grace > extension {
				l.broken("the grace of %s grew by %s", a.ID, until.Sub(by))
			}
			if was, ok := l.recalled[a.ID]; ok && s.now.Before(was) && !until.Before(was) {
				l.broken("the stop of %s was given up for one that takes as long", a.ID)
			}
			delete(l.recalled, a.ID)
			l.by[a.ID] = until
		case pod.CreateContainer:
			l.order(s, a)
		}
		l.volumes(s, a)
	}
}

// landed looks at what a decision is told of what came of earlier ones.
func (l *laws) landed(results []pod.Result) {
	for _, r := range results {
		if r.Action.Kind == pod.PreparePod && r.Failure == nil && !r.Cancelled {
			l.prepared = true
		}
	}
}

// volumes: they are there before the first container is made, and go when none is left that
// could use them: the last one has ended, and none is being made or follows.
func (l *laws) volumes(s *sim, a pod.Action) {
	switch a.Kind {
	case pod.PreparePod:
		if l.over {
			l.broken("the volumes are made again")
		}
	case pod.CreateContainer, pod.StartContainer:
		if !l.prepared {
			l.broken("%s without volumes", a.Kind)
		}
	case pod.CleanPod:
		if len(s.obs.Containers) > 0 {
			l.broken("CleanPod while there are containers")
		}
	case pod.ReleaseVolumes:
		l.prepared, l.over = false, true
		for _, b := range s.obs.Sandboxes {
			if b.State == pod.SandboxReady && !s.mem.Stopped[b.ID] {
				l.broken("ReleaseVolumes while sandbox %s is there", b.ID)
			}
		}
	default:
		return
	}
	if a.Kind != pod.ReleaseVolumes && a.Kind != pod.CleanPod {
		return
	}
	for _, b := range append(slices.Clone(s.inFlight), s.last.Actions...) {
		switch b.Kind {
		case pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PreparePod, pod.PostStart:
			l.broken("%s while %s is under way", a.Kind, b.Kind)
		}
	}
}

// recall looks at what a decision gives up.
func (l *laws) recall(s *sim, d lifecycle.Decision) {
	for _, a := range s.inFlight {
		if a.Kind == pod.StopContainer && slices.Contains(d.Cancel, a.Target()) {
			l.recalled[a.ID] = l.by[a.ID]
		}
	}
}

// order: a main container is only made once the init containers succeeded and the
// sidecars started; an init container once those before it did.
func (l *laws) order(s *sim, a pod.Action) {
	members := member.Of(s.pod, &s.obs, a.SandboxID)
	for i := range members {
		if m := &members[i]; m.Role == member.Main && m.Current != nil {
			return // past that
		}
	}
	for i := range members {
		m := &members[i]
		if m.Spec.Name == a.Container || m.Role == member.Main || m.Role == member.Ephemeral {
			return
		}
		if m.Role == member.Init && !m.Succeeded() && a.Container != "debug" {
			l.broken("%s is made before init container %s succeeded", a.Container, m.Spec.Name)
		}
		if m.Role == member.Sidecar && !m.Runs() && a.Container != "debug" {
			l.broken("%s is made before sidecar %s runs", a.Container, m.Spec.Name)
		}
	}
}

// check looks at the world after a decision.
func (l *laws) check(s *sim) {
	running, live := map[string]int{}, 0
	for _, c := range s.obs.Containers {
		if c.State == pod.ContainerRunning {
			running[c.Name]++
		}
	}
	for name, n := range running {
		if n > 1 {
			l.broken("%d running instances of %s", n, name)
		}
	}
	if len(running) > 0 && !s.mounted {
		l.broken("containers run without their volumes")
	}
	for _, b := range s.obs.Sandboxes {
		if b.State == pod.SandboxReady {
			live++
		}
	}
	if live > 1 {
		l.broken("%d live sandboxes", live)
	}
	d := s.last
	if !d.Done && len(s.inFlight) == 0 && d.Wake.IsZero() && s.stop != nil {
		l.broken("a stopping pod waits for nothing")
	}
	if !d.Wake.IsZero() && !d.Wake.After(s.now) {
		l.broken("wakes at once, for ever")
	}
	if d.Status == nil {
		return
	}
	l.statuses(s, d.Status)
	l.counts(s, d.Status)
	l.pruned(s)
	l.progress(s, d)
}

func (l *laws) statuses(s *sim, st *v1.PodStatus) {
	for _, c := range append(slices.Clone(st.ContainerStatuses), st.InitContainerStatuses...) {
		spec := pod.ContainerNamed(s.pod, c.Name)
		sidecarOrMain := pod.IsSidecar(spec) || slices.ContainsFunc(s.pod.Spec.Containers, func(m v1.Container) bool { return m.Name == c.Name })
		if c.Ready && sidecarOrMain && c.State.Running == nil {
			l.broken("%s is ready and not running", c.Name)
		}
		if c.Ready && sidecarOrMain && spec.ReadinessProbe != nil && !l.probed(s, c.Name) {
			l.broken("%s is ready and no probe says so", c.Name)
		}
		n := 0
		for _, set := range []bool{c.State.Running != nil, c.State.Waiting != nil, c.State.Terminated != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			l.broken("%s has %d states", c.Name, n)
		}
	}
	l.final(s, st)
}

// final: a terminal phase that was told, and is on disk, never changes while the
// pod is wanted; and a pod that had to end has failed.
func (l *laws) final(s *sim, st *v1.PodStatus) {
	if s.stop != nil {
		return
	}
	if l.terminal != "" && st.Phase != l.terminal {
		l.broken("phase %s follows %s, which is final", st.Phase, l.terminal)
	}
	ended := st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed
	if ended && s.disk != nil && s.disk.Terminal != "" {
		l.terminal = st.Phase
	}
	if k := s.mem.Kept; ended && k != nil && k.Ending != nil && st.Phase != v1.PodFailed {
		l.broken("a pod that had to end is %s", st.Phase)
	}
}

// counts: restart counts never fall while a pod is wanted.
func (l *laws) counts(s *sim, st *v1.PodStatus) {
	if s.stop != nil {
		return
	}
	for _, c := range append(slices.Clone(st.ContainerStatuses), st.InitContainerStatuses...) {
		if was := l.restarts[c.Name]; c.RestartCount < was {
			l.broken("the restart count of %s falls from %d to %d", c.Name, was, c.RestartCount)
		}
		l.restarts[c.Name] = c.RestartCount
	}
}

// probed reports whether the newest instance's readiness was ever found good, and
// not bad since.
func (l *laws) probed(s *sim, name string) bool {
	inst := s.obs.Newest(name)
	if r, ok := s.probes[pod.Probe{Container: name, ID: inst.ID, Kind: pod.ProbeReadiness}]; ok {
		return r.OK
	}
	return s.mem.Kept != nil && slices.Contains(s.mem.Kept.Ready, inst.ID)
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
	for _, ids := range []iter.Seq[string]{maps.Keys(s.mem.Stopped), maps.Keys(s.mem.Kills), maps.Keys(s.mem.HookFailed)} {
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

// progress: a pod that is neither up nor at its end says what it waits for, and
// something is under way, or a time is set, or an event is awaited that it names.
func (l *laws) progress(s *sim, d lifecycle.Decision) {
	if d.Done || d.Status.Phase == v1.PodSucceeded || d.Status.Phase == v1.PodFailed {
		return
	}
	for _, c := range d.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return
		}
	}
	if len(d.Reasons) == 0 {
		l.broken("neither up nor ended, and no reason is given")
	}
}
