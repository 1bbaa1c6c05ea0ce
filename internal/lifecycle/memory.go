package lifecycle

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Memory is what one decision leaves to the next. It is plain data, may be lost
// at any time (an agent restart loses it) and is never shared.
type Memory struct {
	// Prepared says that PreparePod has succeeded since the agent started.
	Prepared bool
	// Cleaned says that CleanPod has succeeded.
	Cleaned bool
	// Images holds, by container, the resolved image that the next instance is made from.
	Images map[string]string
	// Retries holds what failed, and when to try again, by retryKey.
	Retries map[string]Retry
	// Stopped holds the IDs of sandboxes that were stopped.
	Stopped map[string]bool
	// Attempts is the least attempt of the next instance by container, known from
	// logs on disk and from what ran: restart counts go on when the runtime has lost
	// its records.
	Attempts map[string]int
	// Terminal is the final phase, once reached (API: a terminal phase never changes).
	Terminal v1.PodPhase
	// Status is the last one told: transition times go on from it, and what a
	// stopping pod's containers came to stays told once they are removed.
	Status *v1.PodStatus
	// StartTime is when the pod was first seen.
	StartTime time.Time
	// BackoffTold holds, by container, the instance whose back-off was told in an event.
	BackoffTold map[string]string
}

// Retry is one failing action's record.
type Retry struct {
	// Count is how often it failed in a row.
	Count int
	// Failed is when it failed last, At when it may be tried again.
	Failed, At time.Time
	// ID is the sandbox or instance that it failed on, if any.
	ID      string
	Failure pod.Failure
}

func (m Memory) clone() Memory {
	m.Images = cloneMap(m.Images)
	m.Retries = cloneMap(m.Retries)
	m.Stopped = cloneMap(m.Stopped)
	m.Attempts = cloneMap(m.Attempts)
	m.BackoffTold = cloneMap(m.BackoffTold)
	return m
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// Back-off of failing effects. A pull follows the kubelet's documented image
// back-off (10 s doubling to 300 s); the rest is local and retried sooner.
const (
	pullBackoff    = 10 * time.Second
	maxPullBackoff = 300 * time.Second
	effectBackoff  = time.Second
	maxEffectRetry = 30 * time.Second
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

// fold takes in what became of earlier actions.
func (d *decider) fold(results []pod.Result) {
	for _, r := range results {
		a := r.Action
		if r.Cancelled {
			continue
		}
		if r.Failure != nil {
			d.failed(r)
			continue
		}
		delete(d.mem.Retries, retryKey(a))
		d.succeeded(r)
	}
}

func (d *decider) succeeded(r pod.Result) {
	a := r.Action
	switch a.Kind {
	case pod.PreparePod:
		d.mem.Prepared = true
	case pod.CleanPod:
		d.mem.Cleaned = true
	case pod.EnsureImage:
		d.mem.Images[a.Container] = r.ID
	case pod.CreateContainer:
		delete(d.mem.Images, a.Container)
		d.event(v1.EventTypeNormal, "Created", a.Container, "Created container "+a.Container)
	case pod.StartContainer:
		d.event(v1.EventTypeNormal, "Started", a.Container, "Started container "+a.Container)
	case pod.StopSandbox:
		d.mem.Stopped[a.ID] = true
	}
}

func (d *decider) failed(r pod.Result) {
	a, key := r.Action, retryKey(r.Action)
	base, top := effectBackoff, maxEffectRetry
	reason, typ := "Failed", v1.EventTypeWarning
	switch a.Kind {
	case pod.EnsureImage:
		base, top = pullBackoff, maxPullBackoff
	case pod.CreateContainer:
		// The image may have been the cause: look for it again.
		delete(d.mem.Images, a.Container)
	case pod.CreateSandbox:
		reason = "FailedCreatePodSandBox"
	case pod.PreparePod:
		reason = "FailedMount"
	case pod.StopContainer, pod.StopSandbox, pod.RemoveContainer, pod.RemoveSandbox, pod.CleanPod:
		reason = "FailedKillPod"
	}
	n := d.mem.Retries[key].Count + 1
	wait := top
	if n < 16 && !r.Failure.Permanent {
		wait = min(base<<(n-1), top)
	}
	d.mem.Retries[key] = Retry{Count: n, Failed: r.At, At: r.At.Add(wait), ID: a.ID, Failure: *r.Failure}
	d.event(typ, reason, a.Container, fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message))
}

// forget drops what observation has made moot: an effect may have come about
// though it was said to fail, or what it was about is gone.
func (d *decider) forget() {
	if d.sandbox != nil {
		delete(d.mem.Retries, retryKey(pod.Action{Kind: pod.CreateSandbox}))
	}
	known := make(map[string]bool, len(d.sandboxes())+len(d.instances()))
	for i := range d.sandboxes() {
		known[d.sandboxes()[i].ID] = true
	}
	for i := range d.instances() {
		c := &d.instances()[i]
		known[c.ID] = true
		if c.State == pod.ContainerRunning {
			delete(d.mem.Retries, retryKey(pod.Action{Kind: pod.StartContainer, Container: c.Name}))
		}
		if d.mem.Attempts[c.Name] <= c.Attempt {
			d.mem.Attempts[c.Name] = c.Attempt + 1
		}
	}
	for key, r := range d.mem.Retries {
		if r.ID != "" && !known[r.ID] {
			delete(d.mem.Retries, key)
		}
	}
	for id := range d.mem.Stopped {
		if !known[id] {
			delete(d.mem.Stopped, id)
		}
	}
}

// retrying returns the record of a failed action that waits to be tried again.
func (d *decider) retrying(a pod.Action) (Retry, bool) {
	r, ok := d.mem.Retries[retryKey(a)]
	return r, ok
}

// waits returns the record of a failed action that may not be tried again yet.
func (d *decider) waits(a pod.Action) (Retry, bool) {
	r, ok := d.retrying(a)
	if !ok || !d.in.Now.Before(r.At) {
		return Retry{}, false
	}
	if a.Kind == pod.EnsureImage && d.in.Node.ImagesAt.After(r.Failed) {
		return Retry{}, false
	}
	return r, true
}
