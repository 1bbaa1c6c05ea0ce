package volumestate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// maxProblems is how many volumes' problems a failure names.
const maxProblems = 3

// Problem is why a volume of a pod isn't ready.
type Problem struct {
	Volume *v1.Volume
	// Detail is said beside the volume's kind.
	Detail string
	Err    error
	// Until is when it is worth another try; zero if that isn't known.
	Until time.Time
	// GoesOn says that nothing failed: it is at work still.
	GoesOn bool
}

// String names the volume, its kind and what is wrong.
func (p Problem) String() string {
	kind := volume.Spec{Volume: p.Volume}.Kind()
	if p.Detail != "" {
		kind += " " + p.Detail
	}
	text := strings.ReplaceAll(p.Err.Error(), "\n", "; ") // errors.Join has a line for each
	var known *pod.Failure
	if errors.As(p.Err, &known) {
		text = known.Message
	}
	return fmt.Sprintf("volume %q (%s): %s", p.Volume.Name, kind, text)
}

// Permanent reports whether trying again can't help.
func (p Problem) Permanent() bool {
	var known *pod.Failure
	return errors.Is(p.Err, volume.ErrUnsupported) || errors.As(p.Err, &known) && known.Permanent
}

// awaits is the object that the volume waits for, if it does.
func (p Problem) awaits() pod.Object {
	var known *pod.Failure
	if errors.As(p.Err, &known) {
		return known.Awaits
	}
	var awaits *volume.AwaitsError
	if errors.As(p.Err, &awaits) {
		return awaits.Object
	}
	return pod.Object{}
}

// until is when the volume is worth another try; zero if only an object can help, or if that
// isn't known.
func (p Problem) until() time.Time {
	var known *pod.Failure
	switch {
	case errors.As(p.Err, &known) && (!known.NotBefore.IsZero() || known.Awaits != (pod.Object{})):
		return known.NotBefore
	case p.awaits() != (pod.Object{}):
		return time.Time{}
	}
	return p.Until
}

// Failure makes one failure of all problems, of which there is at least one. What plugins say by a
// *pod.Failure stays as it is; so does their reason, if none of the volumes has another.
func Failure(problems []Problem) *pod.Failure {
	f := &pod.Failure{}
	var texts []string
	var reasons []pod.Reason
	for _, p := range problems {
		reason := pod.ReasonFailedMount
		var known *pod.Failure
		if errors.As(p.Err, &known) {
			reason = known.Reason
		}
		texts, reasons = append(texts, p.String()), append(reasons, reason)
		f.Permanent = f.Permanent || p.Permanent()
		if f.Awaits == (pod.Object{}) {
			f.Awaits = p.awaits()
		}
		if until := p.until(); !until.IsZero() && (f.NotBefore.IsZero() || until.Before(f.NotBefore)) {
			f.NotBefore = until
		}
	}
	if !slices.ContainsFunc(problems, func(p Problem) bool { return !p.GoesOn }) {
		f.NotBefore = time.Now() // to wait for it again at once is right
	}
	f.Reason = reasons[0]
	if slices.ContainsFunc(reasons, func(r pod.Reason) bool { return r != f.Reason }) {
		f.Reason = pod.ReasonFailedMount
	}
	if more := len(texts) - maxProblems; more > 0 {
		texts = append(texts[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	f.Message = strings.Join(texts, "; ")
	return f
}

// RetryAt says when an error of a plugin wants the volume to be tried again: what waits for an object
// needs no back-off. Zero is for the usual back-off.
func RetryAt(err error) time.Time {
	p := Problem{Err: err}
	if until := p.until(); !until.IsZero() {
		return until
	}
	if p.awaits() != (pod.Object{}) {
		return time.Now()
	}
	return time.Time{}
}

// Detail is what is worth saying of a volume whose file system doesn't answer.
func Detail(s volume.Spec) string {
	switch pv := s.Persistent; {
	case pv != nil && pv.Spec.Local != nil:
		return pv.Spec.Local.Path
	case pv != nil && pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path
	case pv == nil && s.Volume.HostPath != nil:
		return s.Volume.HostPath.Path
	}
	return ""
}
