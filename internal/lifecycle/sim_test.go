package lifecycle

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// epoch is when every simulated pod is first seen.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sim is a runtime and a worker in memory: it holds what the core is told and
// changes it as effects end and containers die.
type sim struct {
	now      time.Time
	pod      *v1.Pod
	stop     *Stop
	obs      pod.Observed
	inFlight []pod.Action
	results  []pod.Result
	mem      Memory
	last     Decision
	nextID   int
	// cancelled holds targets whose action the core no longer wants.
	cancelled map[string]bool
	// problems are broken laws, found after each step.
	problems []string
	// imagesAt is when an image archive was imported.
	imagesAt time.Time
}

func newSim(p *v1.Pod) *sim {
	return &sim{now: epoch, pod: p, cancelled: map[string]bool{}}
}

// decide makes one decision and begins its actions.
func (s *sim) decide() Decision {
	obs := s.obs
	obs.Sandboxes = slices.Clone(s.obs.Sandboxes)
	obs.Containers = slices.Clone(s.obs.Containers)
	in := Input{Now: s.now, Pod: s.pod, Stop: s.stop, Observed: &obs, InFlight: slices.Clone(s.inFlight),
		Results: s.results, Memory: s.mem, Node: Node{HostIPs: []string{"192.0.2.1"}, RuntimeName: "containerd", ImagesAt: s.imagesAt}}
	d := Decide(in)
	s.results, s.mem, s.last = nil, d.Memory, d
	for _, a := range d.Actions {
		for _, b := range s.inFlight {
			if a.Target() == b.Target() {
				s.problems = append(s.problems, fmt.Sprintf("%s begun while %s is under way on %s", a.Kind, b.Kind, a.Target()))
			}
		}
		s.inFlight = append(s.inFlight, a)
	}
	for _, t := range d.Cancel {
		s.cancelled[t] = true
	}
	s.checkLaws()
	return d
}

// take removes the first action of the kind (and container, if given) from those under way.
func (s *sim) take(kind pod.ActionKind, name string) (pod.Action, error) {
	for i, a := range s.inFlight {
		if a.Kind == kind && (name == "" || a.Container == name || a.ID == name) {
			s.inFlight = slices.Delete(s.inFlight, i, i+1)
			return a, nil
		}
	}
	return pod.Action{}, fmt.Errorf("no %s %s under way", kind, name)
}

// succeed ends an action well, with its effect on the runtime.
func (s *sim) succeed(a pod.Action) {
	r := pod.Result{Action: a, At: s.now}
	switch a.Kind {
	case pod.EnsureImage:
		r.ID = "sha256:" + a.Container
	case pod.CreateSandbox:
		s.nextID++
		r.ID = fmt.Sprintf("sb%d", s.nextID)
		s.obs.Sandboxes = slices.Insert(s.obs.Sandboxes, 0, pod.Sandbox{ID: r.ID, State: pod.SandboxReady, Attempt: uint32(a.Attempt), CreatedAt: s.now, IPs: []string{fmt.Sprintf("10.0.0.%d", s.nextID)}})
	case pod.CreateContainer:
		s.nextID++
		r.ID = fmt.Sprintf("%s%d", a.Container, s.nextID)
		s.obs.Containers = append(s.obs.Containers, pod.Container{ID: r.ID, Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt,
			State: pod.ContainerCreated, CreatedAt: s.now, ImageRef: a.ImageRef, Backoff: a.Backoff})
		sort.SliceStable(s.obs.Containers, func(i, j int) bool { return s.obs.Containers[i].Attempt > s.obs.Containers[j].Attempt })
	case pod.StartContainer:
		if c := s.byID(a.ID); c != nil && c.State == pod.ContainerCreated {
			c.State, c.StartedAt = pod.ContainerRunning, s.now
		}
	case pod.StopContainer:
		if c := s.byID(a.ID); c != nil && c.State == pod.ContainerRunning {
			s.exit(c, 143)
		}
	case pod.StopSandbox:
		s.endSandbox(a.ID, 137)
	case pod.RemoveSandbox:
		s.endSandbox(a.ID, 137)
		s.obs.Sandboxes = slices.DeleteFunc(s.obs.Sandboxes, func(b pod.Sandbox) bool { return b.ID == a.ID })
		s.obs.Containers = slices.DeleteFunc(s.obs.Containers, func(c pod.Container) bool { return c.SandboxID == a.ID })
	case pod.RemoveContainer:
		s.obs.Containers = slices.DeleteFunc(s.obs.Containers, func(c pod.Container) bool { return c.ID == a.ID })
	}
	s.results = append(s.results, r)
}

func (s *sim) fail(a pod.Action, reason, message string) {
	s.results = append(s.results, pod.Result{Action: a, At: s.now, Failure: &pod.Failure{Reason: reason, Message: message}})
}

// lose ends an action whose effect came about, while its answer got lost.
func (s *sim) lose(a pod.Action) {
	s.succeed(a)
	s.results = s.results[:len(s.results)-1]
	s.fail(a, "Lost", "the answer was lost")
}

func (s *sim) byID(id string) *pod.Container {
	for i := range s.obs.Containers {
		if s.obs.Containers[i].ID == id {
			return &s.obs.Containers[i]
		}
	}
	return nil
}

func (s *sim) exit(c *pod.Container, code int32) {
	c.State, c.FinishedAt, c.ExitCode = pod.ContainerExited, s.now, code
	c.Reason = "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
}

func (s *sim) endSandbox(id string, code int32) {
	for i := range s.obs.Sandboxes {
		if s.obs.Sandboxes[i].ID == id {
			s.obs.Sandboxes[i].State = pod.SandboxNotReady
		}
	}
	for i := range s.obs.Containers {
		if c := &s.obs.Containers[i]; c.SandboxID == id && c.State == pod.ContainerRunning {
			s.exit(c, code)
		}
	}
}

// restartAgent loses what the agent held in memory. Actions under way are lost
// too: whether they had an effect is for the caller to say first.
func (s *sim) restartAgent() {
	s.mem, s.inFlight, s.results = Memory{}, nil, nil
	s.cancelled = map[string]bool{}
}

// checkLaws looks for what must never be.
func (s *sim) checkLaws() {
	running := map[string]int{}
	for _, c := range s.obs.Containers {
		if c.State == pod.ContainerRunning {
			running[c.Name]++
		}
	}
	for name, n := range running {
		if n > 1 {
			s.problems = append(s.problems, fmt.Sprintf("%d running instances of %s", n, name))
		}
	}
	live := 0
	for _, b := range s.obs.Sandboxes {
		if b.State == pod.SandboxReady {
			live++
		}
	}
	if live > 1 {
		s.problems = append(s.problems, fmt.Sprintf("%d live sandboxes", live))
	}
	d := s.last
	if !d.Done && len(s.inFlight) == 0 && d.Wake.IsZero() && s.stop != nil {
		s.problems = append(s.problems, "a stopping pod waits for nothing")
	}
	if d.Status == nil {
		return
	}
	for _, st := range d.Status.ContainerStatuses {
		if st.Ready && st.State.Running == nil {
			s.problems = append(s.problems, st.Name+" is ready and not running")
		}
	}
}

// describe prints a decision as the transcripts show it.
func (s *sim) describe(d Decision) string {
	var b strings.Builder
	for _, t := range d.Cancel {
		fmt.Fprintf(&b, "  cancel %s\n", t)
	}
	for _, a := range d.Actions {
		fmt.Fprintf(&b, "  do %s\n", describeAction(a))
	}
	for _, e := range d.Events {
		fmt.Fprintf(&b, "  event %s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	for _, r := range d.Reasons {
		fmt.Fprintf(&b, "  because %s\n", r)
	}
	if st := d.Status; st != nil {
		fmt.Fprintf(&b, "  status %s\n", describeStatus(st))
	}
	if !d.Wake.IsZero() {
		fmt.Fprintf(&b, "  wake in %s\n", d.Wake.Sub(s.now))
	}
	if d.Done {
		b.WriteString("  done\n")
	}
	return b.String()
}

func describeAction(a pod.Action) string {
	parts := []string{string(a.Kind)}
	add := func(format string, v any, show bool) {
		if show {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add("%s", a.Container, a.Container != "")
	add("id=%s", a.ID, a.ID != "")
	add("sandbox=%s", a.SandboxID, a.SandboxID != "")
	add("attempt=%d", a.Attempt, a.Kind == pod.CreateSandbox || a.Kind == pod.CreateContainer)
	add("grace=%s", a.Grace, a.Kind == pod.StopContainer)
	add("backoff=%s", a.Backoff, a.Backoff > 0)
	add("(%s)", a.Why, a.Why != "")
	return strings.Join(parts, " ")
}

func describeStatus(st *v1.PodStatus) string {
	parts := []string{string(st.Phase)}
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			parts = append(parts, "Ready")
		}
	}
	for _, c := range append(slices.Clone(st.InitContainerStatuses), st.ContainerStatuses...) {
		state := ""
		switch {
		case c.State.Running != nil:
			state = "Running"
		case c.State.Terminated != nil:
			state = fmt.Sprintf("%s(%d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		}
		if c.RestartCount > 0 {
			state += fmt.Sprintf("#%d", c.RestartCount)
		}
		parts = append(parts, c.Name+"="+state)
	}
	return strings.Join(parts, " ")
}
