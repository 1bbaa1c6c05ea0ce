package lifecycle

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// containerStatus is one container's API status: the newest instance's state,
// its predecessor's end, or what the container is waiting for.
func (d *decider) containerStatus(c *v1.Container, r role, initialized bool) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	inst, previous := d.lastTwo(c.Name)
	started := false
	if inst == nil {
		if told := d.told(c.Name, r); told != nil {
			return *told
		}
		s.RestartCount = int32(d.mem.Attempts[c.Name])
		s.State.Waiting = d.waiting(c, r, initialized)
		s.Started = &started
		return s
	}
	s.RestartCount = int32(inst.Attempt)
	s.ContainerID = d.containerID(inst.ID)
	s.ImageID = inst.ImageRef
	if inst.Image != "" {
		s.Image = inst.Image
	}
	if previous != nil && previous.Ended() {
		s.LastTerminationState.Terminated = d.terminated(previous)
	}
	switch {
	case inst.State == pod.ContainerRunning:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(inst.StartedAt)}
		started = true
		s.Ready = r != roleInit
	case inst.State == pod.ContainerCreated:
		s.State.Waiting = d.waiting(c, r, initialized)
	case d.startsAgain(c, r, inst):
		s.LastTerminationState.Terminated = d.terminated(inst)
		s.State.Waiting = d.waitingAgain(c, r, inst)
	default:
		s.State.Terminated = d.terminated(inst)
		s.Ready = r == roleInit && exitCode(inst) == 0
	}
	s.Started = &started
	if d.in.Stop != nil && s.State.Running == nil {
		s.Ready = false
	}
	return s
}

// told is what was said last of a container that a stopping pod has already removed.
func (d *decider) told(name string, r role) *v1.ContainerStatus {
	if d.in.Stop == nil || d.mem.Status == nil {
		return nil
	}
	list := d.mem.Status.ContainerStatuses
	if r != roleMain {
		list = d.mem.Status.InitContainerStatuses
	}
	for i := range list {
		if list[i].Name == name && list[i].ContainerID != "" {
			return &list[i]
		}
	}
	return nil
}

// startsAgain reports whether an ended instance will get a successor.
func (d *decider) startsAgain(c *v1.Container, r role, inst *pod.Container) bool {
	if d.finished || d.in.Stop != nil {
		return false
	}
	if r == roleInit && d.initialized() {
		return false
	}
	if r == roleInit && (d.sandbox == nil || inst.SandboxID != d.sandbox.ID) {
		return true
	}
	return d.restarts(c, r, exitCode(inst))
}

func (d *decider) lastTwo(name string) (newest, previous *pod.Container) {
	list := d.instances()
	for i := range list {
		if list[i].Name != name {
			continue
		}
		if newest == nil {
			newest = &list[i]
			continue
		}
		return newest, &list[i]
	}
	return newest, nil
}

// waiting says why a container that doesn't exist yet isn't running.
func (d *decider) waiting(c *v1.Container, r role, initialized bool) *v1.ContainerStateWaiting {
	if w := d.waitingFailure(c); w != nil {
		return w
	}
	if r == roleMain && !initialized && len(d.in.Pod.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: waitingPodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: waitingContainerCreating}
}

// waitingAgain says why a container that ended isn't running again.
func (d *decider) waitingAgain(c *v1.Container, r role, inst *pod.Container) *v1.ContainerStateWaiting {
	if wait := delay(inst); wait > 0 && d.in.Now.Before(d.due(inst)) {
		return &v1.ContainerStateWaiting{Reason: waitingCrashLoop,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, c.Name, d.in.Pod.Name, d.in.Pod.Namespace, d.in.Pod.UID)}
	}
	if w := d.waitingFailure(c); w != nil {
		return w
	}
	if r == roleInit {
		return &v1.ContainerStateWaiting{Reason: waitingPodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: waitingContainerCreating}
}

// waitingFailure is the failed effect that a container waits to see tried again.
func (d *decider) waitingFailure(c *v1.Container) *v1.ContainerStateWaiting {
	if r, ok := d.mem.Retries["start/"+c.Name]; ok {
		return &v1.ContainerStateWaiting{Reason: r.Failure.Reason, Message: r.Failure.Message}
	}
	r, ok := d.retrying(pod.Action{Kind: pod.EnsureImage, Container: c.Name})
	if !ok {
		return nil
	}
	if r.Failure.Reason == "ErrImagePull" && !d.isBusy("container/"+c.Name) {
		return &v1.ContainerStateWaiting{Reason: waitingImagePullBackOff,
			Message: fmt.Sprintf("Back-off pulling image %q: %s", c.Image, r.Failure.Message)}
	}
	return &v1.ContainerStateWaiting{Reason: r.Failure.Reason, Message: r.Failure.Message}
}

// terminated is the end of an instance, with the standard reason when the runtime gave none.
func (d *decider) terminated(inst *pod.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode:    exitCode(inst),
		Reason:      inst.Reason,
		Message:     inst.Message,
		StartedAt:   metav1.NewTime(inst.StartedAt),
		FinishedAt:  metav1.NewTime(inst.FinishedAt),
		ContainerID: d.containerID(inst.ID),
	}
	switch {
	case inst.State == pod.ContainerUnknown:
		t.Reason = "ContainerStatusUnknown"
		t.Message = "The container could not be located when the pod was terminated"
	case t.Reason == "" && t.ExitCode == 0:
		t.Reason = "Completed"
	case t.Reason == "":
		t.Reason = "Error"
	}
	return t
}

func (d *decider) containerID(id string) string { return d.in.Node.RuntimeName + "://" + id }
