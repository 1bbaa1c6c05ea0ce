package lifecycle_test

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// epoch is when every simulated pod is first seen.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sim is a runtime, a disk, probes and a worker in memory: it holds what the core
// is told and changes it as effects end and containers die.
type sim struct {
	now      time.Time
	pod      *v1.Pod
	stop     *lifecycle.Stop
	ending   *pod.PodTermination
	node     lifecycle.Node
	excess   []string
	base     string
	object   bool  // RequiresTerminalPhase
	stopCode int32 // that containers end with when they are asked to stop
	obs      pod.Observed
	inFlight []pod.Action
	results  []pod.Result
	mem      lifecycle.Memory
	last     lifecycle.Decision
	nextID   int
	// probes are the results that probes have come to.
	probes map[pod.Probe]pod.ProbeResult
	// allocation and disk outlive the agent; disk is what was kept last.
	allocation *pod.Allocation
	disk       *pod.Checkpoint
	// judge is the node that the pod is to be admitted to.
	judge judge
	// mounted says that the pod's volumes are there.
	mounted bool
	// lost holds the IDs of instances that run though the runtime doesn't know that.
	lost map[string]bool
	// ended holds the IDs of sandboxes that were stopped: runtimes start nothing in them.
	ended map[string]bool
	// resources are those that instances have, allowed those that the pod's control group does.
	resources map[string]v1.ResourceRequirements
	allowed   *pod.Allocation
	// overhead is what the pod was prepared for last.
	overhead v1.ResourceList
	// cancelled holds targets whose action the core no longer wants.
	cancelled map[string]bool
	// record, if set, is told of every decision.
	record func(lifecycle.Input, lifecycle.Decision)
	laws   laws
	// decided counts decisions, story are the last of them.
	decided int
	story   [12]happening
}

// happening is a step and what was decided then.
type happening struct {
	what string
	d    lifecycle.Decision
}

func newSim(p *v1.Pod) *sim {
	if p.Generation == 0 {
		p.Generation = 1
	}
	return &sim{now: epoch, pod: p, stopCode: 143, cancelled: map[string]bool{}, probes: map[pod.Probe]pod.ProbeResult{},
		lost: map[string]bool{}, ended: map[string]bool{}, resources: map[string]v1.ResourceRequirements{},
		node: lifecycle.Node{HostIPs: []string{"192.0.2.1"}, RuntimeName: "containerd"}, laws: newLaws(), judge: newJudge()}
}

// decide makes one decision and begins its actions.
func (s *sim) decide() lifecycle.Decision {
	obs := s.obs
	obs.Sandboxes = slices.Clone(s.obs.Sandboxes)
	obs.Containers = slices.Clone(s.obs.Containers)
	in := lifecycle.Input{Now: s.now, Pod: s.pod, Base: s.base, RequiresTerminalPhase: s.object, Stop: s.stop, Termination: s.ending, Observed: &obs, InFlight: slices.Clone(s.inFlight),
		Results: s.results, Memory: s.mem, Node: s.node, Allocation: s.allocation, ExcessContainers: s.excess}
	for _, p := range s.last.Probes {
		if r, ok := s.probes[p]; ok {
			in.Probes = append(in.Probes, r)
		}
	}
	d := lifecycle.Decide(in)
	s.decided++
	if s.record != nil {
		s.record(in, d)
	}
	s.laws.judge(s, &in, &d)
	s.results, s.mem, s.last = nil, d.Memory, d
	s.inFlight = append(s.inFlight, d.Actions...)
	if slices.ContainsFunc(d.Actions, func(a pod.Action) bool { return a.Kind == pod.PreparePod }) {
		s.overhead = s.pod.Spec.Overhead
	}
	for _, t := range d.Cancel {
		s.cancelled[t] = true
	}
	maps.DeleteFunc(s.probes, func(p pod.Probe, _ pod.ProbeResult) bool { return !slices.Contains(d.Probes, p) })
	s.laws.world(s)
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
	case pod.AdmitPod:
		if s.allocation == nil {
			s.allocation = allocated.Of(s.pod)
		}
	case pod.PreparePod:
		s.mounted = true
		if s.allowed = a.PodResources; s.allowed == nil {
			s.allowed = s.allocation
		}
	case pod.Allocate:
		s.allocation = allocated.Of(s.pod)
	case pod.ResizePod:
		s.allowed = a.PodResources
	case pod.ResizeContainer:
		s.resources[a.ID] = *a.Resources
	case pod.SaveCheckpoint:
		s.disk = a.Checkpoint
	case pod.ReleaseVolumes:
		s.mounted = false
	case pod.CleanPod:
		s.disk, s.allocation, s.mounted = nil, nil, false
	case pod.EnsureImage:
		r.ID = "sha256:" + a.Container
	case pod.CreateSandbox:
		s.nextID++
		r.ID = fmt.Sprintf("sb%d", s.nextID)
		s.obs.Sandboxes = slices.Insert(s.obs.Sandboxes, 0, pod.Sandbox{ID: r.ID, State: pod.SandboxReady, Attempt: uint32(a.Attempt), CreatedAt: s.now, IPs: []string{fmt.Sprintf("10.0.0.%d", s.nextID)}})
	case pod.CreateContainer:
		r.ID = s.create(a)
	case pod.StartContainer:
		if c := s.byID(a.ID); c != nil && c.State == pod.ContainerCreated && !s.ended[c.SandboxID] {
			c.State, c.StartedAt = pod.ContainerRunning, s.now
		}
	case pod.StopContainer:
		delete(s.lost, a.ID)
		if c := s.byID(a.ID); c != nil && c.State == pod.ContainerRunning {
			s.exit(c, s.stopCode)
		}
	case pod.StopSandbox:
		s.endSandbox(a.ID, 137)
	case pod.RemoveSandbox:
		s.endSandbox(a.ID, 137)
		s.obs.Sandboxes = slices.DeleteFunc(s.obs.Sandboxes, func(b pod.Sandbox) bool { return b.ID == a.ID })
		s.obs.Containers = slices.DeleteFunc(s.obs.Containers, func(c pod.Container) bool { return c.SandboxID == a.ID })
	case pod.RemoveContainer:
		delete(s.lost, a.ID)
		s.obs.Containers = slices.DeleteFunc(s.obs.Containers, func(c pod.Container) bool { return c.ID == a.ID })
	}
	s.results = append(s.results, r)
}

func (s *sim) create(a pod.Action) string {
	s.nextID++
	c := pod.Container{ID: fmt.Sprintf("%s%d", a.Container, s.nextID), Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt,
		State: pod.ContainerCreated, CreatedAt: s.now, ImageRef: a.ImageRef, Backoff: a.Backoff}
	c.CreatedWith = &pod.CreatedWith{Resources: a.Resources, PodLimits: allocated.PodWide(s.allocation)}
	if spec := pod.ContainerNamed(s.pod, a.Container); spec != nil {
		c.Image = spec.Image
		if a.Resources == nil {
			c.CreatedWith.Resources = &spec.Resources
		}
		if spec.Lifecycle != nil {
			c.CreatedWith.PreStop = spec.Lifecycle.PreStop
		}
		if isSidecar(s.pod, a.Container) {
			c.CreatedWith.Sidecar = 1 + slices.IndexFunc(s.pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == a.Container })
		}
	}
	if c.CreatedWith.Resources != nil {
		s.resources[c.ID] = *c.CreatedWith.Resources
	}
	s.obs.Containers = append(s.obs.Containers, c)
	sort.SliceStable(s.obs.Containers, func(i, j int) bool { return s.obs.Containers[i].Attempt > s.obs.Containers[j].Attempt })
	return c.ID
}

func (s *sim) fail(a pod.Action, reason, message string) {
	s.results = append(s.results, pod.Result{Action: a, At: s.now, Failure: &pod.Failure{Reason: pod.Reason(reason), Message: message}})
}

// lose ends an action whose effect came about, while its answer got lost.
func (s *sim) lose(a pod.Action) {
	s.succeed(a)
	s.results = s.results[:len(s.results)-1]
	s.fail(a, "Lost", "the answer was lost")
}

// startError ends a start as runtimes do: the instance has ended, and never ran.
func (s *sim) startError(a pod.Action, message string) {
	s.fail(a, "RunContainerError", message)
	if c := s.byID(a.ID); c != nil && c.State == pod.ContainerCreated {
		s.exit(c, 128)
		c.Reason, c.Message = "StartError", message
		c.StartAborted = strings.Contains(message, "context canceled") || strings.Contains(message, "temporarily unavailable")
	}
}

// forget has the runtime lose sight of a running instance, which may run on.
func (s *sim) forget(c *pod.Container) {
	c.State, c.FinishedAt = pod.ContainerUnknown, s.now
	s.lost[c.ID] = true
}

// vanish removes an instance without the agent.
func (s *sim) vanish(id string) {
	delete(s.lost, id)
	s.obs.Containers = slices.DeleteFunc(s.obs.Containers, func(c pod.Container) bool { return c.ID == id })
}

// clockSetBack sets the node's clock back. The agent's own times go by a clock that nobody
// sets; so it is what the runtime recorded that lies ahead.
func (s *sim) clockSetBack(by time.Duration) {
	for i := range s.obs.Sandboxes {
		s.obs.Sandboxes[i].CreatedAt = s.obs.Sandboxes[i].CreatedAt.Add(by)
	}
	for i := range s.obs.Containers {
		c := &s.obs.Containers[i]
		for _, t := range [...]*time.Time{&c.CreatedAt, &c.StartedAt, &c.FinishedAt} {
			if !t.IsZero() {
				*t = t.Add(by)
			}
		}
	}
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
	s.ended[id] = true
	for i := range s.obs.Sandboxes {
		if s.obs.Sandboxes[i].ID == id {
			s.obs.Sandboxes[i].State = pod.SandboxNotReady
		}
	}
	for i := range s.obs.Containers {
		c := &s.obs.Containers[i]
		if c.SandboxID != id {
			continue
		}
		delete(s.lost, c.ID)
		if c.State == pod.ContainerRunning {
			s.exit(c, code)
		}
	}
}

// restartAgent loses what the agent held in memory. Actions under way are lost
// too: whether they had an effect is for the caller to say first.
func (s *sim) restartAgent() {
	if s.object {
		s.laws.known = s.pod.Status.DeepCopy()
		if s.stop != nil { // the next one hears of it by its own clock
			again := *s.stop
			again.At = s.now
			s.stop = &again
		}
	}
	if s.ending != nil { // the next agent decides it anew
		again := *s.ending
		again.At = s.now
		s.ending = &again
	}
	s.mem, s.inFlight, s.results = lifecycle.Memory{Checkpoint: s.disk, OnDisk: s.disk}, nil, nil
	s.last.Probes, s.node.ClockSteps = nil, nil
	clear(s.cancelled)
	clear(s.probes)
	s.laws.restarted(s.disk)
}

// echo has the source know the status that was told last.
func (s *sim) echo() {
	s.pod = s.pod.DeepCopy()
	s.pod.Status = *s.last.Status.DeepCopy()
}

// objectGone takes the pod from its source: nobody waits for its end any more.
func (s *sim) objectGone() {
	grace := 2 * time.Second
	s.laws.known = nil
	s.object, s.stop = false, &lifecycle.Stop{At: s.now, Grace: &grace, Why: "its object is gone"}
}

// loseRecords starts a new agent, with an empty disk.
func (s *sim) loseRecords() {
	s.disk = nil
	s.restartAgent()
}

// change edits the pod's spec in place.
func (s *sim) change(edit func(*v1.Pod)) {
	s.pod = s.pod.DeepCopy()
	edit(s.pod)
	s.pod.Generation++
}

// exitNamed ends the running instance of a container.
func (s *sim) exitNamed(name string, code int32) error {
	for i := range s.obs.Containers {
		if c := &s.obs.Containers[i]; c.Name == name && c.State == pod.ContainerRunning {
			s.exit(c, code)
			return nil
		}
	}
	return fmt.Errorf("%s isn't running", name)
}

// bringUp lets every action succeed until the core has nothing more to do.
func (s *sim) bringUp() error {
	for range 1000 {
		s.decide()
		if len(s.inFlight) == 0 {
			return nil
		}
		for _, a := range slices.Clone(s.inFlight) {
			s.inFlight = s.inFlight[1:]
			s.succeed(a)
		}
	}
	return fmt.Errorf("never comes to rest")
}
