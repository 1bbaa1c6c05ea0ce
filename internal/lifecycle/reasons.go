package lifecycle

import (
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// waiting is one thing the pod waits for. Its text holds no times, so that the
// same wait keeps the same text.
type waiting struct {
	container, text, advice string
	next                    time.Time
}

// because tells what the pod waits for.
func (d *decider) because(w waiting) {
	d.out.Reasons = append(d.out.Reasons, pod.Reason{Container: w.container, Text: w.text, Next: w.next, Advice: w.advice})
}

// date finds out since when each reason has been given.
func (d *decider) date() {
	if len(d.out.Reasons) == 0 {
		d.mem.Since = nil
		return
	}
	since := make(map[string]time.Time, len(d.out.Reasons))
	for i := range d.out.Reasons {
		r := &d.out.Reasons[i]
		key := r.Container + "/" + r.Text
		r.Since = d.in.Now
		if t, ok := d.mem.Since[key]; ok {
			r.Since = t
		}
		since[key] = r.Since
	}
	d.mem.Since = since
}

func failureText(r Retry) string { return fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message) }

// becauseFailed tells of an action that failed and is to be tried again.
func (d *decider) becauseFailed(container string, r Retry) {
	d.because(waiting{container: container, text: failureText(r), next: r.At, advice: advice[r.Failure.Reason]})
}

// advice says what a person can do about a failure, by its reason.
var advice = map[string]string{
	"ErrImagePull":               "check the image's name and tag, and that the registry can be reached and lets this node in; `deckhand images` lists what is here",
	"ErrImageNeverPull":          "put an archive of the image into the images folder, or set another imagePullPolicy",
	"InvalidImageName":           "mend the image's name in the manifest",
	"CreateContainerConfigError": "mend what the message names in the manifest, or make what it refers to",
	"CreateContainerError":       "the runtime refused the container: check command, mounts and security context in the manifest",
	"RunContainerError":          "the container couldn't be started: check that its command exists in the image and may be executed",
	"FailedMount":                "check the volume that the message names",
	"FailedCreatePodSandBox":     "check the runtime and its network: `deckhand pods`, the runtime's log",
	"UnsupportedIsolation":       "remove these fields from the manifest, or run the pod on another node",
	"Deferred":                   "shrink or remove another pod, or ask for less",
	"Infeasible":                 "ask for no more than the node has",
}
