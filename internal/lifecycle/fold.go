package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// fold takes in what became of earlier actions.
func (d *decider) fold(results []pod.Result) {
	for _, r := range results {
		d.ender.Landed(r)
		if r.Cancelled {
			continue
		}
		if r.Failure != nil {
			d.failed(r)
			continue
		}
		d.plan.Succeeded(r.Action)
		d.succeeded(r)
	}
}

func (d *decider) succeeded(r pod.Result) {
	a := r.Action
	switch a.Kind {
	case pod.PreparePod:
		d.mem.Prepared, d.mem.Granted = true, a.PodResources
	case pod.ReleaseVolumes:
		d.mem.Released = true
	case pod.CleanPod:
		d.mem.Cleaned = true
	case pod.EnsureImage:
		if c := d.members.Named(a.Container); c != nil && c.Spec.Image == a.Image {
			d.mem.Images[a.Container] = r.ID
		}
		if r.Message != "" {
			d.plan.Event(v1.EventTypeNormal, "Pulled", a.Container, r.Message)
		}
	case pod.CreateContainer:
		delete(d.mem.Images, a.Container)
		d.plan.Event(v1.EventTypeNormal, "Created", a.Container, "Created container "+a.Container)
	case pod.StartContainer:
		d.plan.Event(v1.EventTypeNormal, "Started", a.Container, "Started container "+a.Container)
	case pod.StopSandbox, pod.StopContainer:
		d.mem.Stopped[a.ID] = true
	case pod.Keep:
		d.book.Disk = a.Kept
	case pod.PostStart:
		d.book.Change(func(k *pod.Kept) { k.Hooked = append(k.Hooked, a.ID) })
	case pod.ResizePod:
		d.mem.Granted = a.PodResources
	case pod.ResizeContainer:
		d.book.Change(func(k *pod.Kept) {
			if k.Resized == nil {
				k.Resized = map[string]v1.ResourceRequirements{}
			}
			k.Resized[a.ID] = *a.Resources
			delete(k.ResizedUnder, a.ID)
			if limits := grant.PodWide(a.PodResources); len(limits) > 0 {
				if k.ResizedUnder == nil {
					k.ResizedUnder = map[string]v1.ResourceList{}
				}
				k.ResizedUnder[a.ID] = limits
			}
			k.Resizing = slices.DeleteFunc(k.Resizing, func(id string) bool { return id == a.ID })
		})
	}
}

func (d *decider) failed(r pod.Result) {
	a := r.Action
	switch a.Kind {
	case pod.PreStop:
		d.plan.Event(v1.EventTypeWarning, "FailedPreStopHook", a.Container, "PreStopHook failed: "+r.Failure.Message)
		return
	case pod.PostStart:
		d.mem.HookFailed[a.ID] = r.Failure.Message
		d.plan.Event(v1.EventTypeWarning, "FailedPostStartHook", a.Container, "PostStartHook failed: "+r.Failure.Message)
		return
	case pod.CreateContainer:
		if r.Failure.Awaits == "" {
			// The image may have been the cause: look for it again.
			delete(d.mem.Images, a.Container)
		}
	}
	if r.Failure.Rejected && d.kept().Ending == nil && d.in.Pod != nil {
		d.book.Change(func(k *pod.Kept) {
			k.Ending, k.RestartAll = &pod.Ending{At: d.in.Now, Reason: r.Failure.Reason, Message: "Pod was rejected: " + r.Failure.Message}, nil
		})
		d.plan.Event(v1.EventTypeWarning, r.Failure.Reason, "", r.Failure.Message)
		return
	}
	record := d.mem.Retries.Fail(a, r.At, *r.Failure)
	if a.Kind == pod.Allocate && record.Count > 1 {
		return // it is told once
	}
	message := record.Text()
	if failedReason(r) == r.Failure.Reason {
		message = r.Failure.Message // the event's reason says the rest
	}
	if a.Kind == pod.EnsureImage && r.Failure.Reason == errImagePull {
		message = fmt.Sprintf("Failed to pull image %q: %s", a.Image, r.Failure.Message)
		if rest, said := strings.CutPrefix(r.Failure.Message, "failed to pull image "); said {
			message = "Failed to pull image " + rest
		}
	}
	if r.Failure.Reason == waitingImagePullBackOff {
		d.plan.Event(v1.EventTypeNormal, "BackOff", a.Container, r.Failure.Message)
		return
	}
	d.plan.Event(v1.EventTypeWarning, failedReason(r), a.Container, message)
}

// failedReason names the event of a failure as the kubelet does.
func failedReason(r pod.Result) string {
	switch r.Action.Kind {
	case pod.CreateSandbox:
		return "FailedCreatePodSandBox"
	case pod.PreparePod:
		return "FailedMount"
	case pod.ReleaseVolumes:
		return "FailedUnmount"
	case pod.StopContainer, pod.StopSandbox, pod.RemoveContainer, pod.RemoveSandbox, pod.CleanPod:
		return "FailedKillPod"
	case pod.Keep:
		return "FailedSync"
	case pod.Allocate:
		return "Resize" + r.Failure.Reason
	case pod.ResizePod, pod.ResizeContainer:
		return "ResizeError"
	default:
		return "Failed"
	}
}

// forget drops what observation has made moot: an effect may have come about
// though it was said to fail, or what it was about is gone.
func (d *decider) forget() {
	if d.sandbox != nil {
		d.mem.Retries.Forget(pod.Action{Kind: pod.CreateSandbox})
	}
	d.takeSpec()
	d.takeOverhead()
	known := make(map[string]bool, len(d.sandboxes())+len(d.instances()))
	for i := range d.sandboxes() {
		known[d.sandboxes()[i].ID] = true
	}
	for i := range d.instances() {
		c := &d.instances()[i]
		known[c.ID] = true
		if c.State == pod.ContainerRunning {
			d.mem.Retries.Forget(pod.Action{Kind: pod.StartContainer, Container: c.Name})
		} else if c.Ended() {
			delete(d.mem.Kills, c.ID)
		}
		if c.State != pod.ContainerCreated {
			d.mem.Attempts[c.Name] = max(d.mem.Attempts[c.Name], c.Attempt+1)
		}
	}
	for i := range d.aside {
		// It left a log, but never ran.
		if c := &d.aside[i]; d.mem.Attempts[c.Name] == c.Attempt+1 {
			d.mem.Attempts[c.Name] = c.Attempt
		}
	}
	for _, a := range d.plan.InFlight() {
		if m := d.members.Named(a.Container); a.Kind == pod.PostStart && (m == nil || !m.Runs() || m.Current.ID != a.ID) {
			d.plan.GiveUp(a.Target()) // its container is gone
		}
	}
	d.mem.Retries.Prune(known)
	prune(d.mem.Stopped, known)
	prune(d.mem.Kills, known)
	prune(d.mem.HookFailed, known)
	for name, c := range d.kept().Carried {
		d.mem.Attempts[name] = max(d.mem.Attempts[name], c.Attempt)
	}
	d.book.Forget(known, d.in.Observed)
}

func prune[V any](m map[string]V, known map[string]bool) {
	for id := range m {
		if !known[id] {
			delete(m, id)
		}
	}
}

// takeOverhead has the pod prepared anew when it takes more or less beside its containers
// than what it was prepared with, as its control group has to allow that: its RuntimeClass
// was defined late, or edited.
func (d *decider) takeOverhead() {
	p := d.in.Pod
	if p == nil || !d.mem.Prepared || grant.SameList(p.Spec.Overhead, d.mem.Overhead) {
		return
	}
	d.mem.Prepared = false
	d.mem.Retries.ForgetSpec()
}

// takeSpec forgets what was about an earlier version of the spec: failures, images.
func (d *decider) takeSpec() {
	p := d.in.Pod
	if p == nil || p.Generation == d.mem.Generation {
		return
	}
	if d.mem.Generation != 0 {
		clear(d.mem.Images)
		d.mem.Retries.ForgetSpec()
	}
	d.mem.Generation = p.Generation
	for _, a := range d.plan.InFlight() {
		if c := d.members.Named(a.Container); a.Kind == pod.EnsureImage && (c == nil || c.Spec.Image != a.Image) {
			d.plan.GiveUp(a.Target())
		}
	}
}
