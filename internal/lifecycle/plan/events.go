package plan

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The events that the core records; each event is recorded once. Reasons and messages are those of the kubelet.

func (p *Plan) event(typ pod.EventType, reason pod.Reason, container, message string) {
	p.Events = append(p.Events, pod.Event{Type: typ, Reason: reason, Container: container, Message: message})
}

// RecordTermination records that the pod has to end although its source still has it.
func (p *Plan) RecordTermination(typ pod.EventType, e *pod.PodTermination) {
	p.Events = append(p.Events, pod.Event{Type: typ, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations})
}

// RecordRejection records that the node rejects the pod.
func (p *Plan) RecordRejection(f *pod.Failure) {
	p.event(v1.EventTypeWarning, f.Reason, "", f.Message)
}

// messages holds the message of each event with a fixed message.
var messages = map[pod.Reason]string{
	pod.ReasonResizeCompleted: "Pod resize completed",
	pod.ReasonResizeStarted:   "Pod resize started",
	pod.ReasonSandboxChanged:  "Pod sandbox changed, it will be killed and re-created.",
}

// RecordNeverStarts records that containers of the pod are never started because its sandbox was lost.
func (p *Plan) RecordNeverStarts() {
	p.event(v1.EventTypeWarning, pod.ReasonSandboxChanged, "",
		"The pod's sandbox is gone. With restartPolicy Never its containers aren't started again, and the pod fails.")
}

// Record records an event with a fixed message.
func (p *Plan) Record(reason pod.Reason) { p.event(v1.EventTypeNormal, reason, "", messages[reason]) }

// RecordPullBackOff records that the pull of an image is in back-off.
func (p *Plan) RecordPullBackOff(container, image string) {
	p.event(v1.EventTypeNormal, pod.ReasonBackOff, container, fmt.Sprintf("Back-off pulling image %q", image))
	p.recordError(container, string(pod.ReasonImagePullBackOff))
}

// recordError records why a container isn't created or started.
func (p *Plan) recordError(container, why string) {
	p.event(v1.EventTypeWarning, pod.ReasonFailed, container, "Error: "+why)
}

// RecordCrashBackOff records that a container is in restart back-off. The message leaves out the delay, so that events
// of later restarts are identical.
func (p *Plan) RecordCrashBackOff(of *v1.Pod, container string) {
	p.event(v1.EventTypeWarning, pod.ReasonBackOff, container,
		fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)",
			container, of.Name, of.Namespace, of.UID))
}

// RecordKilling records that a container is being stopped. An empty message stands for the kubelet's usual one.
func (p *Plan) RecordKilling(container, message string) {
	if message == "" {
		message = "Stopping container " + container
	}
	p.event(v1.EventTypeNormal, pod.ReasonKilling, container, message)
}

// StopMessage is the message of the event Killing when one container of a running pod is stopped. last says that no
// other instance follows, whatever its exit code.
func StopMessage(container string, cause pod.StopCause, probe pod.ProbeKind, last bool) string {
	switch cause {
	case pod.StopPostStartHook:
		return string(pod.ReasonFailedPostStartHook)
	case pod.StopProbe:
		if last {
			return fmt.Sprintf("Container %s failed %s probe", container, probe)
		}
		return fmt.Sprintf("Container %s failed %s probe, will be restarted", container, probe)
	case pod.StopImage:
		return fmt.Sprintf("Container %s definition changed, will be restarted", container)
	default:
		return fmt.Sprintf("Container %s resize requires restart", container)
	}
}

// RecordPreStopFailed records that a preStop hook failed or timed out.
func (p *Plan) RecordPreStopFailed(container, why string) {
	p.event(v1.EventTypeWarning, pod.ReasonFailedPreStopHook, container, "PreStopHook failed: "+why)
}

// RecordPostStartFailed records that a postStart hook failed.
func (p *Plan) RecordPostStartFailed(container, why string) {
	p.event(v1.EventTypeWarning, pod.ReasonFailedPostStartHook, container, "PostStartHook failed: "+why)
}

// RecordSuccess records the event of an action that succeeded, if the action has one.
func (p *Plan) RecordSuccess(r pod.Result) {
	c := r.Action.Container
	switch r.Action.Kind {
	case pod.EnsureImage:
		if r.Message != "" {
			p.event(v1.EventTypeNormal, pod.ReasonPulled, c, r.Message)
		}
	case pod.CreateContainer:
		p.event(v1.EventTypeNormal, pod.ReasonCreated, c, "Container created")
	case pod.StartContainer:
		p.event(v1.EventTypeNormal, pod.ReasonStarted, c, "Container started")
	}
}

// RecordFailure records the events of an action that failed.
func (p *Plan) RecordFailure(r pod.Result) {
	f, c := r.Failure, r.Action.Container
	if f.Expected {
		return
	}
	switch r.Action.Kind {
	case pod.EnsureImage:
		p.recordImageFailure(r)
		return
	case pod.CreateContainer, pod.StartContainer:
		p.recordError(c, f.Message)
		return
	}
	reason, message := failedReason(r), f.Error()
	if reason == f.Reason {
		message = f.Message // the event's reason completes the message
	}
	switch reason {
	case pod.ReasonFailedCreatePodSandBox:
		message = "Failed to create pod sandbox: " + f.Message
	case pod.ReasonFailedKillPod:
		message = "error killing pod: " + message
	}
	p.event(v1.EventTypeWarning, reason, c, message)
}

// recordImageFailure records the two events for an image that a container can't get: the error, and the container's
// reason for waiting.
func (p *Plan) recordImageFailure(r pod.Result) {
	f, c, image := r.Failure, r.Action.Container, cmp.Or(r.Failure.Image, r.Action.Image)
	if f.Reason.OfVolume() { // before the image: see pod.EnsureImage
		p.event(v1.EventTypeWarning, f.Reason, c, f.Message)
		return
	}
	if f.Reason == pod.ReasonImagePullBackOff {
		p.RecordPullBackOff(c, image)
		return
	}
	reason, message := pod.ReasonFailed, fmt.Sprintf("Failed to pull image %q: %s", image, f.Message)
	if rest, prefixed := strings.CutPrefix(f.Message, "failed to pull image "); prefixed {
		message = "Failed to pull image " + rest
	}
	switch f.Reason {
	case pod.ReasonErrImageNeverPull:
		reason, message = f.Reason, f.Message
	case pod.ReasonInvalidImageName, pod.ReasonImageInspectError:
		reason, message = pod.ReasonInspectFailed, f.Message
	}
	p.event(v1.EventTypeWarning, reason, c, message)
	p.recordError(c, string(f.Reason))
}

// failedReason is the event reason of a failure, as the kubelet names it.
func failedReason(r pod.Result) pod.Reason {
	switch r.Action.Kind {
	case pod.CreateSandbox:
		return pod.ReasonFailedCreatePodSandBox
	case pod.PreparePod:
		switch reason := r.Failure.Reason; {
		case reason.OfVolume(), reason == pod.ReasonFailedCreatePodContainer,
			reason == pod.ReasonFailedPrepareDynamicResources:
			return reason
		}
		return pod.ReasonFailedMount
	case pod.ReleaseVolumes:
		return pod.ReasonFailedUnmount
	case pod.StopContainer, pod.StopSandbox, pod.RemoveContainer, pod.RemoveSandbox, pod.CleanPod:
		return pod.ReasonFailedKillPod
	case pod.SaveCheckpoint:
		return pod.ReasonFailedSync
	case pod.Allocate:
		switch r.Failure.Reason {
		case v1.PodReasonDeferred:
			return pod.ReasonResizeDeferred
		case v1.PodReasonInfeasible:
			return pod.ReasonResizeInfeasible
		}
		return pod.ReasonResizeError
	case pod.ResizePod, pod.ResizeContainer:
		return pod.ReasonResizeError
	default:
		return pod.ReasonFailed
	}
}
