package logs

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// StatusOf is the status of a pod's container, of whatever kind; nil if it has none of that name.
func StatusOf(p *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses,
		p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// Choose says which instance's log is meant where the container's, or that of its previous instance, is asked for, as
// kubectl has it. attempts are the instances that have a log. The error says that there is none, in the words that
// kubectl's users know.
func Choose(pod string, status *v1.ContainerStatus, previous bool, attempts []int) (int, error) {
	newest := int(status.RestartCount)
	last, waiting := status.LastTerminationState.Terminated, status.State.Waiting
	switch {
	case previous && last == nil:
		return 0, fmt.Errorf("previous terminated container %q in pod %q not found", status.Name, pod)
	case previous && last.ContainerID != status.ContainerID:
		return newest - 1, nil
	case previous || slices.Contains(attempts, newest):
		return newest, nil
	case waiting != nil && last == nil:
		return 0, fmt.Errorf("container %q in pod %q is waiting to start: %s", status.Name, pod, waiting.Reason)
	case waiting != nil && newest > 0:
		return newest - 1, nil // the newest was made but hasn't started
	}
	return newest, nil
}

// Followed is a container as the statuses of its pod show it.
type Followed struct {
	Log
	// Latest returns the pod that has its name now, or nil. Wake is filled when that may have changed.
	Latest func() *v1.Pod
	Wake   <-chan struct{}
}

// Changed implements Instances.
func (f *Followed) Changed() <-chan struct{} { return f.Wake }

// Current implements Instances.
func (f *Followed) Current() Instance {
	p := f.Latest()
	if p == nil || p.UID != f.UID {
		return Instance{Ended: true, Final: true}
	}
	status := StatusOf(p, f.Container)
	if status == nil {
		return Instance{}
	}
	now := Instance{Attempt: int(status.RestartCount)}
	switch {
	case status.State.Running != nil:
	case status.State.Terminated != nil:
		now.Ended, now.Final = true, true
	default:
		// Waiting is one that hasn't started as well as one that will be followed.
		last := status.LastTerminationState.Terminated
		now.Ended = last != nil && last.ContainerID == status.ContainerID
		now.Final = p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	}
	return now
}
