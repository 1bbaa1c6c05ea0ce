package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Waiting reasons of the API, as kubectl and everybody's dashboards know them.
const (
	waitingContainerCreating = "ContainerCreating"
	waitingPodInitializing   = "PodInitializing"
	waitingCrashLoop         = "CrashLoopBackOff"
	waitingImagePullBackOff  = "ImagePullBackOff"
	errImagePull             = "ErrImagePull"
)

// status builds the pod's API status from this decision.
func (d *decider) status() *v1.PodStatus {
	f := &apistatus.Facts{
		Now: d.in.Now, Pod: d.in.Pod, HostIPs: d.in.Node.HostIPs, Runtime: d.in.Node.RuntimeName,
		StartTime: d.started, Initialized: d.initialized(), Stopping: d.in.Stop != nil,
		Terminal: d.kept().Terminal, Ended: d.hasEnded(), Ending: d.kept().Ending, Last: d.mem.Status,
	}
	if d.sandbox != nil && !d.mem.Stopped[d.sandbox.ID] {
		f.Sandbox = d.sandbox
	}
	f.AllRestarting = d.allRestarting()
	d.resizeConditions(f)
	f.Members = make([]apistatus.Container, len(d.members))
	for i := range d.members {
		f.Members[i] = d.facts(&d.members[i], f.Initialized)
	}
	st := apistatus.Build(f)
	d.mem.Status = st
	return st
}

// hasEnded reports whether nothing runs any more or is about to, and never will for
// a pod that was found ended by this agent. Ephemeral containers don't count.
func (d *decider) hasEnded() bool {
	if d.mem.Status == nil && d.book.Disk != nil && d.book.Disk.Terminal != "" {
		return true // it may have been told, and that is final
	}
	if _, making := d.making(); making || !d.durable() {
		return false // what isn't on disk might be told otherwise by the next agent
	}
	for i := range d.instances() {
		c := &d.instances()[i]
		if m := d.members.Named(c.Name); c.State == pod.ContainerRunning && (m == nil || m.Role != member.Ephemeral) {
			return false
		}
	}
	return true
}

// facts are what the status says of one member.
func (d *decider) facts(m *member.Member, initialized bool) apistatus.Container {
	c := apistatus.Container{Member: m, Restarts: d.mem.Attempts[m.Spec.Name], Waiting: d.waitingOf(m, initialized)}
	if carried, ok := d.kept().Carried[m.Spec.Name]; ok && (m.Newest == nil || m.Newest.Attempt == carried.Attempt) {
		c.Carried = carried.Last
	}
	if m.Role == member.Ephemeral {
		return c
	}
	if a := d.in.Allocation; a != nil {
		if r, ok := a.Containers[m.Spec.Name]; ok {
			c.Granted = &r
		}
	}
	if m.Newest != nil && m.Newest.State == pod.ContainerRunning {
		c.Actual = resizing.Actual(m.Newest, d.kept())
	} else if c.Granted != nil {
		c.Actual = c.Granted
	}
	return c
}

// dateStart finds out when this node first saw the pod (API: PodStatus.startTime).
// A static pod carries that in an annotation; that of others is kept.
func (d *decider) dateStart() {
	if d.started = d.kept().StartTime; !d.started.IsZero() {
		return
	}
	if seen, ok := d.in.Pod.Annotations[pod.AnnotationConfigSeen]; ok {
		if t, err := time.Parse(time.RFC3339, seen); err == nil {
			d.started = t
			return
		}
	}
	d.started = d.in.Now
	for _, sb := range d.sandboxes() {
		if sb.CreatedAt.Before(d.started) {
			d.started = sb.CreatedAt
		}
	}
	d.book.Change(func(k *pod.Kept) { k.StartTime = d.started })
}

// initialized reports whether every init container has succeeded (in this
// sandbox, or for good) and every sidecar before the main containers started.
func (d *decider) initialized() bool {
	if d.kept().Terminal == v1.PodSucceeded || d.sandbox != nil && d.pastInit() {
		return true
	}
	if d.finished {
		for i := range d.members {
			if m := &d.members[i]; m.Role == member.Main && m.Newest != nil {
				return true
			}
		}
	}
	for i := range d.members {
		m := &d.members[i]
		if m.Role == member.Sidecar && !m.Started || m.Role == member.Init && !m.Succeeded() {
			return false
		}
	}
	return true
}

// waitingOf says why a container doesn't run; nil for one that runs or has ended
// for good.
func (d *decider) waitingOf(m *member.Member, initialized bool) *v1.ContainerStateWaiting {
	inst := m.Newest
	if inst == nil && m.Role == member.Ephemeral && !d.mayStart(m) {
		return nil
	}
	if inst != nil && inst.State == pod.ContainerCreated {
		return d.waiting(m)
	}
	if inst != nil && (!inst.Ended() || !d.startsAgain(m, initialized)) {
		return nil
	}
	if due, delay, _ := d.backoff(m); d.in.Now.Before(due) {
		return d.crashLoop(m, delay)
	}
	return d.waiting(m)
}

func (d *decider) crashLoop(m *member.Member, wait time.Duration) *v1.ContainerStateWaiting {
	p := d.in.Pod
	return &v1.ContainerStateWaiting{Reason: waitingCrashLoop,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, m.Spec.Name, p.Name, p.Namespace, p.UID)}
}

// startsAgain reports whether an ended instance will get a successor.
func (d *decider) startsAgain(m *member.Member, initialized bool) bool {
	if d.finished || d.in.Stop != nil || d.kept().Ending != nil || m.Role == member.Ephemeral {
		return false
	}
	if d.kept().RestartAll != nil {
		return true
	}
	if m.Role == member.Init {
		if initialized {
			return false
		}
		if m.Current == nil {
			return true
		}
	}
	return d.again(m)
}

// waiting says why a container isn't running (again) yet.
func (d *decider) waiting(m *member.Member) *v1.ContainerStateWaiting {
	if w := d.waitingFailure(m); w != nil {
		return w
	}
	if len(d.in.Pod.Spec.InitContainers) > 0 && m.Role != member.Ephemeral {
		// The kubelet says so of every container of such a pod, also later.
		return &v1.ContainerStateWaiting{Reason: waitingPodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: waitingContainerCreating}
}

// waitingFailure is the failed effect that a container waits to see tried again.
func (d *decider) waitingFailure(m *member.Member) *v1.ContainerStateWaiting {
	name := m.Spec.Name
	if r, ok := d.plan.Retrying(pod.Action{Kind: pod.StartContainer, Container: name}); ok {
		return &v1.ContainerStateWaiting{Reason: r.Failure.Reason, Message: r.Failure.Message}
	}
	r, ok := d.plan.Retrying(pod.Action{Kind: pod.EnsureImage, Container: name})
	if !ok {
		return nil
	}
	if _, pulling := d.plan.Busy("container/" + name); r.Failure.Reason == errImagePull && !pulling {
		return &v1.ContainerStateWaiting{Reason: waitingImagePullBackOff,
			Message: fmt.Sprintf("Back-off pulling image %q: %s", m.Spec.Image, r.Failure.Message)}
	}
	return &v1.ContainerStateWaiting{Reason: r.Failure.Reason, Message: r.Failure.Message}
}

// resizeConditions are those of a resize that waits or is under way (KEP-1287).
func (d *decider) resizeConditions(f *apistatus.Facts) {
	a := d.in.Allocation
	if a == nil {
		return
	}
	if p := d.in.Pod.Spec.Resources; p != nil {
		f.Resources = a.Pod
		if d.mem.Granted != nil {
			f.Resources = d.mem.Granted.Pod
		}
	}
	f.Requests = a.Total
	if r, ok := d.plan.Retrying(pod.Action{Kind: pod.Allocate}); ok && d.resizing.Wanted {
		f.ResizePending = &v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: r.Failure.Reason, Message: r.Failure.Message}
	}
	if d.resizing.UnderWay() {
		f.ResizeInProgress = &v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}
		if r, ok := d.resizeTrouble(); ok {
			f.ResizeInProgress.Reason, f.ResizeInProgress.Message = "Error", r.Text()
		}
	}
}
