package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Wait is one thing the pod waits for. Its text holds no times, so that the same
// wait keeps the same text.
type Wait struct {
	Container, Text, Advice string
	// Next is when something is tried next; zero if only an event can end the wait.
	Next time.Time
}

// Because tells what the pod waits for.
func (p *Plan) Because(w Wait) {
	p.Reasons = append(p.Reasons, pod.Reason{Container: w.Container, Text: w.Text, Next: w.Next, Advice: w.Advice})
}

// BecauseFailed tells of an action that failed and is to be tried again.
func (p *Plan) BecauseFailed(container string, r Retry) {
	advice := Advice(r.Failure.Reason)
	// A pull may fail for many reasons beside the credentials that it awaits.
	if w := r.Failure.Awaits; w != "" && !strings.Contains(r.Failure.Reason, "ImagePull") {
		advice = fmt.Sprintf("define %s in a manifest, or change it: this is tried again as soon as that is done", w)
		if strings.HasPrefix(w, "PersistentVolumeClaim") { // it may be its volume that is missing
			advice = fmt.Sprintf("define %s in a manifest, change it, or define a PersistentVolume that fits: this is tried again as soon as that is done", w)
		}
	}
	p.Because(Wait{Container: container, Text: r.Text(), Next: r.At, Advice: advice})
}

// BecauseRetried tells of the action if it failed and is to be tried again.
func (p *Plan) BecauseRetried(container string, a pod.Action) {
	if r, ok := p.Retrying(a); ok {
		p.BecauseFailed(container, r)
	}
}

// Date finds out since when each reason has been given, from what it returned at
// the decision before.
func (p *Plan) Date(before map[string]time.Time) map[string]time.Time {
	if len(p.Reasons) == 0 {
		return nil
	}
	since := make(map[string]time.Time, len(p.Reasons))
	for i := range p.Reasons {
		r := &p.Reasons[i]
		key := r.Container + "/" + r.Text
		r.Since = p.Now
		if t, ok := before[key]; ok {
			r.Since = t
		}
		since[key] = r.Since
	}
	return since
}

// Text says what failed.
func (r Retry) Text() string { return fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message) }

// Advice says what a person can do about a failure, by its reason.
func Advice(reason string) string {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff":
		return "check the image's name and tag, and that the registry can be reached and lets this node in; `deckhand images` lists what is here"
	case "ErrImageNeverPull":
		return "put an archive of the image into the images folder, or set another imagePullPolicy"
	case "InvalidImageName":
		return "mend the image's name in the manifest"
	case "CreateContainerConfigError":
		return "mend what the message names in the manifest, or make what it refers to"
	case "CreateContainerError":
		return "the runtime refused the container: check command, mounts and security context in the manifest"
	case "RunContainerError":
		return "the container couldn't be started: check that its command exists in the image and may be executed"
	case "FailedMount":
		return "mend what the message names: the volume in the manifest, or what it is made from on this node"
	case "FailedUnmount":
		return "end what still uses the volume that the message names: this is tried again by itself"
	case "FailedCreatePodSandBox":
		return "check the runtime and its network: `deckhand pods`, the runtime's log"
	case "SysctlForbidden", "AppArmor", "SupplementalGroupsPolicyNotSupported":
		return "remove these fields from the manifest, or run the pod on another node"
	case "Deferred":
		return "shrink or remove another pod, or ask for less"
	case "Infeasible":
		return "ask for no more than the node has"
	default:
		return ""
	}
}
