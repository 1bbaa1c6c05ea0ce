package apistatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Messages of a container whose end wasn't observed: statusUnknownMessage if its pod has ended,
// vanishedMessage if it was last reported as running.
const (
	statusUnknownMessage = "The container could not be located when the pod was terminated"
	vanishedMessage      = "The container could not be located when the pod was deleted.  The container used to be " +
		"Running"
)

// passedMessage is the message of an init container that has succeeded and has no record in the runtime any more.
const passedMessage = "Unable to get init container status from container runtime and pod has been initialized, " +
	"treat it as exited normally"

// container is the API status of a container. Its restart count never falls, even if the runtime has lost instances
// or they were removed.
func (f *Facts) container(c *Container) v1.ContainerStatus {
	s := f.newest(c)
	if last := f.last(c); last != nil {
		s.RestartCount = max(s.RestartCount, last.RestartCount)
	}
	return s
}

// newest is a container's status according to its instances: the state of the newest instance, the end of the instance
// before it, or why the container waits.
func (f *Facts) newest(c *Container) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Spec.Name, Image: c.Spec.Image}
	f.setResources(c, &s)
	started := false
	s.Started = &started
	inst := c.Newest
	if c.Passed && (inst == nil || inst.Ended() && container.ExitCode(inst) != 0) {
		return f.passed(c, s)
	}
	if inst == nil {
		if removed := f.removedStatus(c); removed != nil {
			return *removed
		}
		s.RestartCount = int32(c.Restarts)
		s.LastTerminationState.Terminated = c.Carried
		if last := f.last(c); last != nil && c.Carried == nil {
			s.LastTerminationState.Terminated = vanished(last)
		}
		f.setNeverRan(c, &s)
		return s
	}
	s.RestartCount = int32(inst.Attempt)
	s.ContainerID = ContainerID(f.Runtime, inst.ID)
	s.ImageID = inst.ImageRef
	if inst.Image != "" {
		s.Image = inst.Image
	}
	if p := c.Previous; p != nil && p.Ended() {
		s.LastTerminationState.Terminated = Terminated(p, f.Runtime)
	} else if c.Carried != nil {
		s.LastTerminationState.Terminated = c.Carried
	} else if inst.Attempt > 0 {
		s.LastTerminationState.Terminated = f.lastEnd(c)
	}
	setReported(c.Spec, inst, &s)
	switch {
	case inst.State == pod.ContainerCreated:
		f.setNeverRan(c, &s)
	case c.Waiting != nil:
		s.State.Waiting = c.Waiting
		if inst.Ended() {
			s.LastTerminationState.Terminated = Terminated(inst, f.Runtime)
		}
	case inst.State == pod.ContainerRunning:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(inst.StartedAt)}
		started, s.Ready = c.Started, c.Ready
	default:
		s.State.Terminated = Terminated(inst, f.Runtime)
		s.Ready = c.Role == container.Init && container.ExitCode(inst) == 0 && !c.RunsAgain
	}
	return s
}

// passed is the status of an init container that has succeeded, if the runtime has no record of its success any more.
// It is the last reported status or, without one, Completed.
func (f *Facts) passed(c *Container, s v1.ContainerStatus) v1.ContainerStatus {
	if last := f.last(c); last != nil && last.State.Terminated != nil && last.State.Terminated.ExitCode == 0 {
		s = *last
		s.Ready = true
		return s
	}
	s.State.Terminated = &v1.ContainerStateTerminated{Reason: string(pod.ReasonCompleted), Message: passedMessage}
	s.RestartCount, s.Ready = int32(c.Restarts), true
	return s
}

// setNeverRan sets the state of a container that never ran. Usually the state is Waiting, with the reason. It is
// Terminated, with an unknown end, if the pod ended after it was initialized, or has to end in a terminal phase.
func (f *Facts) setNeverRan(c *Container, s *v1.ContainerStatus) {
	if f.Terminal != "" && f.Initialized && c.Role != container.Ephemeral || f.Stopping && f.Ended &&
		f.RequiresTerminalPhase {
		s.State.Terminated = unknownEnd(statusUnknownMessage)
		return
	}
	s.State.Waiting = c.Waiting
	if s.State.Waiting == nil {
		s.State.Terminated = unknownEnd(vanishedMessage)
	}
}

// removedStatus is the last status of a container whose record is gone and which isn't restarted, because it is
// ephemeral or its pod ends; nil if unknown.
func (f *Facts) removedStatus(c *Container) *v1.ContainerStatus {
	if !f.Stopping && f.Terminal == "" && f.Termination == nil && c.Waiting != nil {
		return nil
	}
	s := f.last(c)
	if s == nil || s.ContainerID == "" || s.State.Waiting != nil {
		return nil
	}
	if s.State.Running != nil { // its end wasn't observed
		lost := *s
		lost.State, lost.Ready, lost.Started = v1.ContainerState{Terminated: unknownEnd(statusUnknownMessage)}, false,
			new(bool)
		return &lost
	}
	return s
}

// vanished is the end of a container's last instance, from its last status, if the runtime has no record of it any
// more.
func vanished(last *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case last.ContainerID == "":
	case last.State.Running != nil:
		return unknownEnd(vanishedMessage)
	case last.State.Terminated != nil:
		return last.State.Terminated
	}
	return last.LastTerminationState.Terminated
}

// unknownEnd is the end of an instance whose exit code is unknown.
func unknownEnd(message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: pod.UnknownExitCode, Reason: string(pod.ReasonContainerStatusUnknown),
		Message: message}
}

// lastEnd is the last reported end of an instance that has been removed since.
func (f *Facts) lastEnd(c *Container) *v1.ContainerStateTerminated {
	if s := f.last(c); s != nil {
		return s.LastTerminationState.Terminated
	}
	return nil
}

func (f *Facts) last(c *Container) *v1.ContainerStatus {
	if f.Last == nil {
		return nil
	}
	return pod.StatusNamed(f.Last, c.Spec.Name)
}

// Attempts is the attempt number of a container's next instance, from its status.
func Attempts(s *v1.ContainerStatus) int {
	n := int(s.RestartCount)
	if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
		n++ // the instance with that number has run
	}
	return n
}

// setResources sets the allocated resources and those in force (KEP-1287).
func (f *Facts) setResources(c *Container, s *v1.ContainerStatus) {
	if c.Role == container.Ephemeral {
		return
	}
	if c.Allocated != nil && len(c.Allocated.Requests) > 0 {
		s.AllocatedResources = c.Allocated.Requests
	}
	if c.Actual != nil {
		s.Resources = c.Actual
	}
}

// setReported sets the fields that only the runtime reports.
func setReported(c *v1.Container, inst *pod.Container, s *v1.ContainerStatus) {
	t := inst.RuntimeReported
	if t == nil {
		return
	}
	s.User = t.User
	if t.StopSignal != "" {
		signal := t.StopSignal
		s.StopSignal = &signal
	}
	for i := range c.VolumeMounts {
		if m, ok := mount(&c.VolumeMounts[i], t.VolumeMounts); ok {
			s.VolumeMounts = append(s.VolumeMounts, m)
		}
	}
}

// mount finds the status of a volume mount. All fields but recursiveReadOnly come from the spec (API:
// VolumeMountStatus), because the runtime reports no volume names and only cleaned paths.
func mount(want *v1.VolumeMount, reported []v1.VolumeMountStatus) (v1.VolumeMountStatus, bool) {
	inside := elements(want.MountPath)
	i := slices.IndexFunc(reported, func(m v1.VolumeMountStatus) bool {
		return slices.Equal(elements(m.MountPath), inside)
	})
	if i < 0 {
		return v1.VolumeMountStatus{}, false
	}
	m := v1.VolumeMountStatus{Name: want.Name, MountPath: want.MountPath, ReadOnly: want.ReadOnly}
	if m.ReadOnly {
		m.RecursiveReadOnly = reported[i].RecursiveReadOnly
	}
	return m, true
}

// elements splits a path into its elements.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(e string) bool { return e == "" || e == "." })
}

// Terminated is the end of an instance, with the standard reason if the runtime gave none.
func Terminated(inst *pod.Container, runtime string) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode:    container.ExitCode(inst),
		Reason:      string(inst.Reason),
		Message:     inst.Message,
		StartedAt:   metav1.NewTime(inst.StartedAt),
		FinishedAt:  metav1.NewTime(inst.FinishedAt),
		ContainerID: ContainerID(runtime, inst.ID),
	}
	switch {
	case inst.State == pod.ContainerUnknown:
		t.Reason, t.Message = string(pod.ReasonContainerStatusUnknown), statusUnknownMessage
	case (inst.Reason == "" || inst.Reason == pod.ReasonOOMKilled) && t.ExitCode == 0:
		// The OOM killer killed another process of the container than its main process, which exited with 0.
		t.Reason = string(pod.ReasonCompleted)
	case inst.Reason == "":
		t.Reason = string(pod.ReasonError)
	}
	return t
}

// ContainerID is the ID of an instance as in the API status: with the name of the runtime as its scheme.
func ContainerID(runtime, id string) string { return runtime + "://" + id }
