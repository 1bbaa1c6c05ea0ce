package apistatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Reason and message of a container of whose end nothing is known.
const (
	statusUnknown        = "ContainerStatusUnknown"
	statusUnknownMessage = "The container could not be located when the pod was terminated"
	unknownExitCode      = 137
)

// container is one container's API status. Its restart count never falls, whatever
// the runtime has lost or had removed.
func (f *Facts) container(c *Container) v1.ContainerStatus {
	s := f.newest(c)
	if last := f.last(c); last != nil {
		s.RestartCount = max(s.RestartCount, last.RestartCount)
	}
	return s
}

// newest is a container's status by its instances: the newest one's state, its
// predecessor's end, or what the container waits for.
func (f *Facts) newest(c *Container) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Spec.Name, Image: c.Spec.Image}
	f.resources(c, &s)
	started := false
	s.Started = &started
	inst := c.Newest
	if inst == nil {
		if told := f.told(c); told != nil {
			return *told
		}
		s.RestartCount = int32(c.Restarts)
		s.LastTerminationState.Terminated = c.Carried
		f.neverRan(c, &s)
		return s
	}
	if told := f.told(c); told != nil && int(told.RestartCount) > inst.Attempt {
		return *told // a newer instance is removed already
	}
	s.RestartCount = int32(inst.Attempt)
	s.ContainerID = containerID(f.Runtime, inst.ID)
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
	tell(c.Spec, inst, &s)
	switch {
	case inst.State == pod.ContainerRunning:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(inst.StartedAt)}
		started, s.Ready = c.Started, c.Ready
	case c.Waiting != nil:
		s.State.Waiting = c.Waiting
		if inst.Ended() {
			s.LastTerminationState.Terminated = Terminated(inst, f.Runtime)
		}
	case inst.State == pod.ContainerCreated:
		f.neverRan(c, &s)
	default:
		s.State.Terminated = Terminated(inst, f.Runtime)
		s.Ready = c.Role == member.Init && member.ExitCode(inst) == 0
	}
	return s
}

// neverRan is the state of a container without an instance that ran: what it
// waits for, or in a pod that has ended after it was initialized, that nobody knows.
func (f *Facts) neverRan(c *Container, s *v1.ContainerStatus) {
	if f.Terminal != "" && f.Ended && f.Initialized && c.Role != member.Ephemeral {
		s.State.Terminated = &v1.ContainerStateTerminated{ExitCode: unknownExitCode, Reason: statusUnknown, Message: statusUnknownMessage}
		return
	}
	s.State.Waiting = c.Waiting
	if s.State.Waiting == nil {
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
}

// told is what was said last of a container that a stopping pod has already removed.
func (f *Facts) told(c *Container) *v1.ContainerStatus {
	if !f.Stopping || f.Last == nil {
		return nil
	}
	s := f.last(c)
	if s == nil || s.ContainerID == "" {
		return nil
	}
	return s
}

// lastEnd is what was told of the end of an instance that is removed since.
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
	list := f.Last.ContainerStatuses
	switch c.Role {
	case member.Init, member.Sidecar:
		list = f.Last.InitContainerStatuses
	case member.Ephemeral:
		list = f.Last.EphemeralContainerStatuses
	}
	for i := range list {
		if list[i].Name == c.Spec.Name {
			return &list[i]
		}
	}
	return nil
}

// resources tells what the node has granted and what is in force (KEP-1287).
func (f *Facts) resources(c *Container, s *v1.ContainerStatus) {
	if c.Role == member.Ephemeral {
		return
	}
	if c.Granted != nil && len(c.Granted.Requests) > 0 {
		s.AllocatedResources = c.Granted.Requests
	}
	if c.Actual != nil {
		s.Resources = c.Actual
	}
}

// tell adds what the runtime says of an instance.
func tell(c *v1.Container, inst *pod.Container, s *v1.ContainerStatus) {
	t := inst.Told
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

// mount finds what became of a mount. All but how deep it is read-only is as the spec has it (API:
// VolumeMountStatus): the runtime knows no volumes, and paths in their shortest form only.
func mount(want *v1.VolumeMount, told []v1.VolumeMountStatus) (v1.VolumeMountStatus, bool) {
	inside := elements(want.MountPath)
	i := slices.IndexFunc(told, func(m v1.VolumeMountStatus) bool { return slices.Equal(elements(m.MountPath), inside) })
	if i < 0 {
		return v1.VolumeMountStatus{}, false
	}
	m := v1.VolumeMountStatus{Name: want.Name, MountPath: want.MountPath, ReadOnly: want.ReadOnly}
	if m.ReadOnly {
		m.RecursiveReadOnly = told[i].RecursiveReadOnly
	}
	return m, true
}

// elements are what a path leads through.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(e string) bool { return e == "" || e == "." })
}

// Terminated is the end of an instance, with the standard reason when the runtime gave none.
func Terminated(inst *pod.Container, runtime string) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode:    member.ExitCode(inst),
		Reason:      inst.Reason,
		Message:     inst.Message,
		StartedAt:   metav1.NewTime(inst.StartedAt),
		FinishedAt:  metav1.NewTime(inst.FinishedAt),
		ContainerID: containerID(runtime, inst.ID),
	}
	switch {
	case inst.State == pod.ContainerUnknown:
		t.Reason, t.Message = statusUnknown, statusUnknownMessage
	case (t.Reason == "" || t.Reason == "OOMKilled") && t.ExitCode == 0:
		// A process beside the first one was killed: that isn't how the container ended.
		t.Reason = "Completed"
	case t.Reason == "":
		t.Reason = "Error"
	}
	return t
}

func containerID(runtime, id string) string { return runtime + "://" + id }
