package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Retry is the record of an action that has failed.
type Retry struct {
	// Count is the number of consecutive failures.
	Count int
	// Failed is the time of the last failure, At the earliest time of the next try.
	Failed, At time.Time
	// ID is the sandbox or instance that the action failed on, if any. It is empty if a start waits until processes can
	// be created, because the next try uses another instance.
	ID string
	// Image is the container image that couldn't be pulled or found, for EnsureImage.
	Image   string
	Failure pod.Failure
	// Triggers are the retry triggers at the time of the failure. Later triggers are compared with them and not with
	// Failed: Failed may be later than the triggers if the machine's clock was set back.
	Triggers RetryTriggers
}

// Retries holds the records of failed actions, by retryKey.
type Retries map[string]Retry

// Back-off of failing actions. A pull follows the kubelet's documented image back-off (10 s doubling to 300 s). Other
// actions are local and retried sooner. Four kinds of failures are also retried before the back-off ends: after a full
// disk when the disk has room, after a missing answer of the runtime when the runtime answers again, after a wait for
// resources when some are freed, and after a wait for an object when that appears. For the last two, the timer is only
// a safety net.
const (
	pullBackoff       = 10 * time.Second
	maxPullBackoff    = 300 * time.Second
	actionBackoff     = time.Second
	maxActionBackoff  = 30 * time.Second
	maxDiskBackoff    = time.Minute
	triggerBackoff    = time.Minute
	maxTriggerBackoff = 5 * time.Minute
)

// retryKey groups the actions that share a back-off.
func retryKey(a pod.Action) string {
	switch a.Kind {
	case pod.CreateContainer, pod.StartContainer:
		return "start/" + a.Container
	default:
		return string(a.Kind) + "/" + a.Target()
	}
}

// Failed records the failure of an action, and returns the record.
func (p *Plan) Failed(a pod.Action, at time.Time, f pod.Failure) Retry {
	base, top := actionBackoff, maxActionBackoff
	switch {
	case a.Kind == pod.Allocate || f.Awaits != (pod.Object{}) || f.Wait == pod.WaitForRoom ||
		f.Wait == pod.WaitForPlugin || f.Wait == pod.WaitForPressure:
		base, top = triggerBackoff, maxTriggerBackoff
	case a.Kind == pod.EnsureImage && f.Reason != pod.ReasonImageInspectError && !f.Reason.OfVolume():
		// ImageInspectError means that the runtime didn't answer. Neither that nor the failure of a volume involves a
		// registry, so the wait can be short.
		base, top = pullBackoff, maxPullBackoff
	case f.Disk:
		top = maxDiskBackoff
	}
	key := retryKey(a)
	n := p.Retries[key].Count + 1
	wait := top
	if n < 16 && !f.Permanent {
		wait = min(base<<(n-1), top)
	}
	due := at.Add(wait)
	if !f.NotBefore.IsZero() {
		due = f.NotBefore
	}
	r := Retry{Count: n, Failed: at, At: due, ID: a.ID, Image: a.Image, Failure: f,
		Triggers: p.triggers}
	if f.Reason.OfVolume() {
		r.Image = ""
	}
	if f.Wait == pod.WaitForProcesses && a.Kind == pod.StartContainer {
		r.ID = ""
	}
	p.Retries[key] = r
	return r
}

// Forget drops the record of an action.
func (rs Retries) Forget(a pod.Action) { delete(rs, retryKey(a)) }

// Awaiting returns the objects that failed actions wait for, sorted and without duplicates.
func (rs Retries) Awaiting() []pod.Object {
	var list []pod.Object
	for _, r := range rs {
		if r.Failure.Awaits != (pod.Object{}) {
			list = append(list, r.Failure.Awaits)
		}
	}
	slices.SortFunc(list, func(a, b pod.Object) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(list)
}

// Prune drops the records about sandboxes and instances that don't exist any more.
func (rs Retries) Prune(known map[string]bool) {
	for key, r := range rs {
		if r.ID != "" && !known[r.ID] {
			delete(rs, key)
		}
	}
}

// ForgetSpec drops the failure records of actions that depend only on the spec: new instances, resources, and images.
// It keeps the records of images that the edited spec still uses (ensureImages): other edits don't make these
// available any sooner.
func (rs Retries) ForgetSpec(ensureImages []pod.Action) {
	images := map[string]string{}
	for _, a := range ensureImages {
		images[retryKey(a)] = a.Image
	}
	for key, r := range rs {
		if r.ID == "" && (r.Image == "" || r.Image != images[key]) {
			delete(rs, key)
		}
	}
}

// Succeeded drops the record of an action's failures.
func (p *Plan) Succeeded(a pod.Action) {
	if a.Kind != pod.CreateContainer || p.Retries[retryKey(a)].Failure.Wait != pod.WaitForProcesses {
		p.Retries.Forget(a) // otherwise the start may fail again, so its back-off continues
	}
	delete(p.Asked, retryKey(a))
}

// Retrying returns the record of a failed action that will be retried.
func (p *Plan) Retrying(a pod.Action) (Retry, bool) {
	r, ok := p.Retries[retryKey(a)]
	return r, ok
}

// Waits returns the record of a failed action whose back-off isn't over.
func (p *Plan) Waits(a pod.Action) (Retry, bool) {
	r, ok := p.Retrying(a)
	if !ok || !p.Now.Before(r.At) || p.sooner(a, r) {
		return Retry{}, false
	}
	return r, true
}

// sooner reports whether a trigger since the last start of the failed action justifies a retry before the end of its
// back-off.
func (p *Plan) sooner(a pod.Action, r Retry) bool {
	asked := p.Asked[retryKey(a)]
	switch {
	case r.Failure.Disk && p.triggers.Disk.After(r.Triggers.Disk),
		r.Failure.Unanswered && p.triggers.Runtime.After(r.Triggers.Runtime):
		return true
	case r.Failure.Awaits != (pod.Object{}) && p.triggers.Objects.After(asked.Objects):
		return true
	case a.Kind == pod.EnsureImage && !r.Failure.Reason.OfVolume():
		return p.triggers.Images.After(asked.Images)
	case a.Kind == pod.Allocate, a.Kind == pod.AdmitPod:
		return p.triggers.Room.After(asked.Room)
	}
	return false
}
