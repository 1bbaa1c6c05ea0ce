package volumestate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// maxProblems is how many volumes' problems a failure describes.
const maxProblems = 3

// Problem is a volume of a pod that isn't ready, and why.
type Problem struct {
	Spec volume.Spec
	Err  error
	// Until is when to retry the operation; zero if no time is set.
	Until time.Time
	// GoesOn says that nothing failed: the operation is still running.
	GoesOn bool
}

// String returns the message of the kubelet's event for the failure.
func (p Problem) String() string {
	name, operation, step := p.Spec.Volume.Name, "MountVolume", "SetUp"
	if p.Spec.Persistent != nil {
		name = p.Spec.Persistent.Name
	}
	if p.Spec.Block() {
		operation = "MapVolume"
	}
	if awaits, ok := errors.AsType[*volume.AwaitsError](p.Err); ok && awaits.Step != "" {
		step = awaits.Step
	}
	return fmt.Sprintf("%s.%s failed for volume %q : %s", operation, step, name, p.why())
}

// why returns the text of the error, without the volume's name.
func (p Problem) why() string {
	if known, ok := errors.AsType[*pod.Failure](p.Err); ok {
		return known.Message
	}
	return strings.ReplaceAll(p.Err.Error(), "\n", "; ") // errors.Join has a line for each error
}

// unbound reports whether the volume is a claim that isn't bound to a PersistentVolume yet.
func (p Problem) unbound() bool { return isClaim(p.Spec.Volume) && p.Spec.Persistent == nil }

// reason returns the reason of the volume's event.
func (p Problem) reason() pod.Reason {
	var known *pod.Failure
	switch {
	case errors.As(p.Err, &known):
		return known.Reason
	case p.Spec.Block():
		return pod.ReasonFailedMapVolume
	}
	return pod.ReasonFailedMount
}

// Permanent reports whether a retry can't help.
func (p Problem) Permanent() bool {
	var known *pod.Failure
	return errors.Is(p.Err, volume.ErrUnsupported) || errors.As(p.Err, &known) && known.Permanent
}

// awaits returns the object that the volume waits for, if any.
func (p Problem) awaits() pod.Object {
	if known, ok := errors.AsType[*pod.Failure](p.Err); ok {
		return known.Awaits
	}
	if awaits, ok := errors.AsType[*volume.AwaitsError](p.Err); ok {
		return awaits.Object
	}
	return pod.Object{}
}

// Expected reports whether the error is that of a volume that waits for others to do their part as always.
func Expected(err error) bool {
	awaits, ok := errors.AsType[*volume.AwaitsError](err)
	return ok && awaits.Expected
}

// until returns when to retry the operation. It is zero if only a change of an object can help, or if no time is
// set.
func (p Problem) until() time.Time {
	var known *pod.Failure
	switch {
	case errors.As(p.Err, &known) && (!known.NotBefore.IsZero() || known.Awaits != (pod.Object{})):
		return known.NotBefore
	case p.awaits() != (pod.Object{}):
		if awaits, ok := errors.AsType[*volume.AwaitsError](p.Err); ok && !awaits.NotBefore.IsZero() {
			return awaits.NotBefore
		}
		return object.NotBefore(p.Err)
	}
	return p.Until
}

// Failure combines the problems of a pod's volumes, at least one, to one failure. If a problem's error is a
// *pod.Failure, its message is kept unchanged. The reason is that of the first problem, or FailedMount if one of the
// problems has that reason.
func Failure(problems []Problem) *pod.Failure {
	f := &pod.Failure{Reason: problems[0].reason(), Message: message(problems), Expected: true}
	for _, p := range problems {
		if p.reason() == pod.ReasonFailedMount {
			f.Reason = pod.ReasonFailedMount
		}
		f.Permanent, f.Disk = f.Permanent || p.Permanent(), f.Disk || atomicfile.DiskFails(p.Err)
		f.Unknown = f.Unknown || object.IsUnknown(p.Err)
		f.Expected = f.Expected && Expected(p.Err)
		if f.Awaits == (pod.Object{}) {
			f.Awaits = p.awaits()
		}
		if until := p.until(); !until.IsZero() && (f.NotBefore.IsZero() || until.Before(f.NotBefore)) {
			f.NotBefore = until
		}
	}
	if !slices.ContainsFunc(problems, func(p Problem) bool { return !p.GoesOn }) {
		f.NotBefore = time.Now() // the pod may wait for the operations again at once
	}
	return f
}

// message describes each failed volume, and, in one sentence, all volumes that are still being mounted or aren't
// bound.
func message(problems []Problem) string {
	var failed, unmounted, unbound, why []string
	for i, p := range problems {
		name := p.Spec.Volume.Name
		switch {
		case p.unbound():
			unbound = append(unbound, name)
			fallthrough
		case p.GoesOn:
			unmounted = append(unmounted, name)
			if i < maxProblems {
				why = append(why, fmt.Sprintf("volume %q%s: %s", name, at(p.Spec), p.why()))
			}
		case i < maxProblems:
			failed = append(failed, p.String())
		}
	}
	if len(unmounted) > 0 {
		failed = append(failed, fmt.Sprintf(
			"Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to process "+
				"volumes=%v: %s",
			unmounted, unbound, strings.Join(why, "; ")))
	}
	if more := len(problems) - maxProblems; more > 0 {
		failed = append(failed, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(failed, "; ")
}

// RetryAt returns when to retry a mount after a plugin's error: now if the volume waits for an object, because the
// object's change triggers the retry. Zero means the usual back-off.
func RetryAt(err error) time.Time {
	p := Problem{Err: err}
	until := p.until()
	if _, ok := errors.AsType[*volume.AwaitsError](err); ok {
		until = object.NotBefore(err)
	}
	if until.IsZero() && p.awaits() != (pod.Object{}) {
		return time.Now()
	}
	return until
}

// at returns the host path of a volume for messages, because its file system may hang.
func at(s volume.Spec) string {
	switch pv := s.Persistent; {
	case pv != nil && pv.Spec.Local != nil:
		return " at " + pv.Spec.Local.Path
	case pv != nil && pv.Spec.HostPath != nil:
		return " at " + pv.Spec.HostPath.Path
	case pv == nil && s.Volume.HostPath != nil:
		return " at " + s.Volume.HostPath.Path
	}
	return ""
}
