package executor

import (
	"cmp"
	"errors"
	"strings"

	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// failure converts the error of an action to a pod.Failure. A *pod.Failure is returned as it is, with Disk
// and Wait also set according to its text; any other error gets the API's reason for failures of the action.
func failure(a pod.Action, err error) *pod.Failure {
	if f, ok := errors.AsType[*pod.Failure](err); ok {
		disk, wait := f.Disk || atomicfile.SaysDiskFull(f.Message), cmp.Or(f.Wait, waitFor(f.Message))
		if disk != f.Disk || wait != f.Wait {
			full := *f
			full.Disk, full.Wait = disk, wait
			return &full
		}
		return f
	}
	reason := pod.ReasonFailedSync
	switch a.Kind {
	case pod.PreparePod:
		reason = pod.ReasonFailedMount
	case pod.CreateSandbox:
		reason = pod.ReasonFailedCreatePodSandBox
	case pod.EnsureImage:
		reason = pod.ReasonErrImagePull
	case pod.CreateContainer:
		reason = pod.ReasonCreateContainerError
	case pod.StartContainer:
		reason = pod.ReasonRunContainerError
	case pod.StopContainer, pod.RemoveContainer:
		reason = pod.ReasonKillContainerError
	case pod.StopSandbox, pod.RemoveSandbox:
		reason = pod.ReasonKillPodSandboxError
	case pod.ReleaseVolumes, pod.CleanPod:
		reason = pod.ReasonFailedUnmount
	case pod.ResizePod, pod.ResizeContainer:
		reason = pod.ReasonResizeError
	}
	f := &pod.Failure{Reason: reason, Message: withRemedy(err), Wait: waitFor(err.Error()),
		Disk: atomicfile.DiskFails(err)}
	if _, ok := errors.AsType[*cri.Error](err); ok {
		f.Unanswered = !cri.IsAnswer(err)
	}
	if awaits, ok := errors.AsType[*volume.AwaitsError](err); ok {
		f.Awaits, f.NotBefore = awaits.Object, awaits.NotBefore
	}
	return f
}

// waitFor returns the kind of wait that the text of an action's error stands for; empty for a failure.
func waitFor(text string) pod.WaitFor {
	if process.Exhausted(text) {
		return pod.WaitForProcesses
	}
	return ""
}

// withRemedy returns an error's text, with advice if the cause isn't obvious: a disk with free space may have no free
// inodes.
func withRemedy(err error) string {
	if atomicfile.DiskFull(err) {
		return err.Error() + " (free space or inodes on that disk: see df and df -i)"
	}
	return err.Error()
}

// oneLine returns the failure with its message on one line. The text of joined errors has several lines.
func oneLine(f *pod.Failure) *pod.Failure {
	if !strings.Contains(f.Message, "\n") {
		return f
	}
	short := *f
	short.Message = strings.ReplaceAll(strings.TrimRight(f.Message, "\n"), "\n", "; ")
	return &short
}
