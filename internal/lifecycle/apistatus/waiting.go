package apistatus

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// DeadlineMessage is the message of a pod that exceeded its activeDeadlineSeconds.
const DeadlineMessage = "Pod was active on the node longer than the specified deadline"

// Waiting is the state of a container that waits for this reason.
func Waiting(reason pod.Reason, message string) *v1.ContainerStateWaiting {
	return &v1.ContainerStateWaiting{Reason: string(reason), Message: message}
}

// RestartingAll is the state of a container that is removed in order to be restarted with all others (KEP-5532).
func RestartingAll() *v1.ContainerStateWaiting {
	return Waiting(pod.ReasonRestartingAllContainers, "The container is removed because RestartAllContainers in place")
}

// CrashLoop is the state of a container that waits out its restart back-off.
func CrashLoop(p *v1.Pod, container string, delay time.Duration) *v1.ContainerStateWaiting {
	return Waiting(pod.ReasonCrashLoopBackOff,
		fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, container, p.Name, p.Namespace,
			p.UID))
}

// PullBackOff is the state of a container whose image pull will be retried.
func PullBackOff(image string, f *pod.Failure) *v1.ContainerStateWaiting {
	return Waiting(pod.ReasonImagePullBackOff, fmt.Sprintf("Back-off pulling image %q: %s", image, f.Message))
}
