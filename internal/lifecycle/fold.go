package lifecycle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Back-off of failing effects. A pull follows the kubelet's documented image
// back-off (10 s doubling to 300 s); the rest is local and retried sooner. A
// resize that waits for room is woken when there is some; the timer is a safety net.
const (
	pullBackoff    = 10 * time.Second
	maxPullBackoff = 300 * time.Second
	effectBackoff  = time.Second
	maxEffectRetry = 30 * time.Second
	roomBackoff    = time.Minute
	maxRoomBackoff = 5 * time.Minute
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
		d.asked(r)
		if r.Cancelled {
			continue
		}
		if r.Failure != nil {
			d.failed(r)
			continue
		}
		delete(d.mem.Retries, retryKey(r.Action))
		d.succeeded(r)
	}
}

// asked takes in the end of an effort to end an instance, however it went.
func (d *decider) asked(r pod.Result) {
	k, ok := d.mem.Kills[r.Action.ID]
	if !ok {
		return
	}
	switch r.Action.Kind {
	case pod.PreStop:
		k.Hooked = true
		if r.Cancelled {
			d.event(v1.EventTypeWarning, "FailedPreStopHook", r.Action.Container, "PreStopHook failed: it ran past the grace period")
		}
	case pod.StopContainer:
		k.Asked = time.Time{}
	}
	d.mem.Kills[r.Action.ID] = k
}

func (d *decider) succeeded(r pod.Result) {
	a := r.Action
	switch a.Kind {
	case pod.PreparePod:
		d.mem.Prepared, d.mem.Granted = true, a.PodResources
	case pod.CleanPod:
		d.mem.Cleaned = true
	case pod.EnsureImage:
		if c := d.named(a.Container); c != nil && c.Spec.Image == a.Image {
			d.mem.Images[a.Container] = r.ID
		}
		if r.Message != "" {
			d.event(v1.EventTypeNormal, "Pulled", a.Container, r.Message)
		}
	case pod.CreateContainer:
		delete(d.mem.Images, a.Container)
		d.event(v1.EventTypeNormal, "Created", a.Container, "Created container "+a.Container)
	case pod.StartContainer:
		d.event(v1.EventTypeNormal, "Started", a.Container, "Started container "+a.Container)
	case pod.StopSandbox:
		d.mem.Stopped[a.ID] = true
	case pod.Keep:
		d.mem.Saved = a.Kept
	case pod.PostStart:
		d.keep(func(k *pod.Kept) { k.Hooked = append(k.Hooked, a.ID) })
	case pod.ResizePod:
		d.mem.Granted = a.PodResources
	case pod.ResizeContainer:
		d.keep(func(k *pod.Kept) {
			if k.Resized == nil {
				k.Resized = map[string]v1.ResourceRequirements{}
			}
			k.Resized[a.ID] = *a.Resources
		})
	}
}

func (d *decider) failed(r pod.Result) {
	a, key := r.Action, retryKey(r.Action)
	base, top := effectBackoff, maxEffectRetry
	reason := "Failed"
	message := fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message)
	switch a.Kind {
	case pod.PreStop:
		d.event(v1.EventTypeWarning, "FailedPreStopHook", a.Container, "PreStopHook failed: "+r.Failure.Message)
		return
	case pod.PostStart:
		d.mem.HookFailed[a.ID] = r.Failure.Message
		d.event(v1.EventTypeWarning, "FailedPostStartHook", a.Container, "PostStartHook failed: "+r.Failure.Message)
		return
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
	case pod.Keep:
		reason = "FailedSync"
	case pod.Allocate:
		base, top = roomBackoff, maxRoomBackoff
		reason = "Resize" + r.Failure.Reason
	case pod.ResizePod, pod.ResizeContainer:
		reason = "ResizeError"
	}
	n := d.mem.Retries[key].Count + 1
	wait := top
	if n < 16 && !r.Failure.Permanent {
		wait = min(base<<(n-1), top)
	}
	d.mem.Retries[key] = Retry{Count: n, Failed: r.At, At: r.At.Add(wait), ID: a.ID, Failure: *r.Failure}
	if a.Kind == pod.Allocate && n > 1 {
		return // it is told once
	}
	d.event(v1.EventTypeWarning, reason, a.Container, message)
}

// forget drops what observation has made moot: an effect may have come about
// though it was said to fail, or what it was about is gone.
func (d *decider) forget() {
	if d.sandbox != nil {
		delete(d.mem.Retries, retryKey(pod.Action{Kind: pod.CreateSandbox}))
	}
	d.takeSpec()
	known := make(map[string]bool, len(d.sandboxes())+len(d.instances()))
	for i := range d.sandboxes() {
		known[d.sandboxes()[i].ID] = true
	}
	for i := range d.instances() {
		c := &d.instances()[i]
		known[c.ID] = true
		if c.State == pod.ContainerRunning {
			delete(d.mem.Retries, retryKey(pod.Action{Kind: pod.StartContainer, Container: c.Name}))
		} else if c.Ended() {
			delete(d.mem.Kills, c.ID)
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
	prune(d.mem.Stopped, known)
	prune(d.mem.Kills, known)
	prune(d.mem.HookFailed, known)
	d.forgetKept(known)
}

func prune[V any](m map[string]V, known map[string]bool) {
	for id := range m {
		if !known[id] {
			delete(m, id)
		}
	}
}

// forgetKept drops what was kept of instances that are gone, and what containers
// went on from once they have an instance again.
func (d *decider) forgetKept(known map[string]bool) {
	k := d.kept()
	stale := func(id string) bool { return !known[id] }
	carried := func(name string, c pod.Carried) bool {
		inst := d.in.Observed.Newest(name)
		return inst != nil && inst.Attempt >= c.Attempt
	}
	moot := slices.ContainsFunc(k.Hooked, stale) || slices.ContainsFunc(k.Started, stale) ||
		slices.ContainsFunc(k.Ready, stale) || slices.ContainsFunc(k.Renew, stale)
	for id := range k.Resized {
		moot = moot || stale(id)
	}
	for name, c := range k.Carried {
		moot = moot || carried(name, c)
		d.mem.Attempts[name] = max(d.mem.Attempts[name], c.Attempt)
	}
	if !moot {
		return
	}
	d.keep(func(k *pod.Kept) {
		k.Hooked, k.Started = slices.DeleteFunc(k.Hooked, stale), slices.DeleteFunc(k.Started, stale)
		k.Ready, k.Renew = slices.DeleteFunc(k.Ready, stale), slices.DeleteFunc(k.Renew, stale)
		prune(k.Resized, known)
		for name, c := range k.Carried {
			if carried(name, c) {
				delete(k.Carried, name)
			}
		}
	})
}

// takeSpec forgets what was about an earlier version of the spec: failures, images.
func (d *decider) takeSpec() {
	p := d.in.Pod
	if p == nil || p.Generation == d.mem.Generation {
		return
	}
	if d.mem.Generation != 0 {
		clear(d.mem.Images)
		for key, r := range d.mem.Retries {
			if r.ID == "" {
				delete(d.mem.Retries, key)
			}
		}
	}
	d.mem.Generation = p.Generation
	for _, a := range d.in.InFlight {
		if c := d.named(a.Container); a.Kind == pod.EnsureImage && (c == nil || c.Spec.Image != a.Image) {
			d.cancel(a.Target())
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
	if a.Kind == pod.EnsureImage && d.in.Node.ImagesAt.After(r.Failed) ||
		a.Kind == pod.Allocate && d.in.Node.RoomAt.After(d.mem.RoomSeen) {
		return Retry{}, false
	}
	return r, true
}
