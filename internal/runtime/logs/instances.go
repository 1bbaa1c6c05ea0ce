package logs

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Choose returns the instance whose log kubectl shows for a container with this status, or, if previous is true,
// for its previous instance. attempts are the instances that have a log. The error means that there is none; it has
// the API server's wording.
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
		return newest - 1, nil // the newest was created but hasn't started
	}
	return newest, nil
}

// Followed implements Instances with the container's status in its pod.
type Followed struct {
	Log
	// Latest returns the current pod of that name, or nil. A value arrives on Wake when the result of Latest may
	// have changed.
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
	status := pod.StatusNamed(&p.Status, f.Container)
	if status == nil {
		return Instance{}
	}
	now := Instance{Attempt: int(status.RestartCount)}
	switch {
	case status.State.Running != nil:
	case status.State.Terminated != nil:
		now.Ended, now.Final = true, true
	default:
		// Waiting containers either haven't started yet or will be restarted.
		last := status.LastTerminationState.Terminated
		now.Ended = last != nil && last.ContainerID == status.ContainerID
		now.Final = p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	}
	return now
}
