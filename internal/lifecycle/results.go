package lifecycle

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// applyResults applies the results of earlier actions.
func (d *decider) applyResults(results []pod.Result) {
	for _, r := range results {
		d.terminator.CollectResult(r)
		if r.Cancelled {
			continue
		}
		if r.Failure != nil {
			d.failed(r)
			continue
		}
		d.plan.Succeeded(r.Action)
		d.plan.RecordSuccess(r)
		d.succeeded(r)
	}
}

func (d *decider) succeeded(r pod.Result) {
	a := r.Action
	switch a.Kind {
	case pod.AdmitPod:
		d.mem.Admitted = true
	case pod.PreparePod:
		d.mem.Prepared, d.mem.Allocated, d.mem.ResizingPod = true, a.PodResources, false
	case pod.ReleaseVolumes:
		d.mem.Released = true
	case pod.CleanPod:
		d.mem.Cleaned = true
	case pod.EnsureImage:
		if c := d.containers.Named(a.Container); c != nil && c.Spec.Image == a.Image {
			d.mem.Images[a.Container] = r.ID
		}
	case pod.CreateContainer:
		delete(d.mem.Images, a.Container)
	case pod.StopSandbox, pod.StopContainer:
		d.mem.Stopped[a.ID] = true
	case pod.SaveCheckpoint:
		d.draft.Disk = a.Checkpoint
	case pod.PostStart:
		d.draft.Change(func(k *pod.Checkpoint) { k.PostStartDone = append(k.PostStartDone, a.ID) })
	case pod.ResizePod:
		d.mem.Allocated, d.mem.ResizingPod = a.PodResources, false
	case pod.ResizeContainer:
		d.draft.Change(func(k *pod.Checkpoint) {
			if k.Resized == nil {
				k.Resized = map[string]v1.ResourceRequirements{}
			}
			k.Resized[a.ID] = *a.Resources
			delete(k.ResizedUnder, a.ID)
			if limits := allocated.PodWide(a.PodResources); len(limits) > 0 {
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
		if r.Failure.Wait == "" {
			return // the terminator has recorded the event
		}
	case pod.PostStart:
		if r.Failure.Wait != "" {
			break // it couldn't begin
		}
		d.fail(a.ID, pod.Failed{Cause: pod.StopPostStartHook, Message: r.Failure.Message})
		d.plan.RecordPostStartFailed(a.Container, r.Failure.Message)
		return
	case pod.CreateContainer:
		if r.Failure.Awaits == (pod.Object{}) && r.Failure.Wait == "" {
			// The image may have been the cause: resolve it again.
			delete(d.mem.Images, a.Container)
		}
	}
	if r.Failure.Rejected && d.checkpoint().Termination == nil && d.in.Pod != nil {
		if d.in.Pod.Generation != d.mem.Generation {
			return // the node decides again about the admission of the edited pod
		}
		d.draft.Change(func(k *pod.Checkpoint) {
			k.Termination, k.RestartAll = &pod.PodTermination{At: d.in.Now, Reason: r.Failure.Reason,
				Message: "Pod was rejected: " + r.Failure.Message, Rejected: true, Generation: d.in.Pod.Generation}, nil
		})
		d.plan.RecordRejection(r.Failure)
		return
	}
	record := d.plan.Failed(a, r.At, *r.Failure)
	waits, once := r.Failure.Wait != "", a.Kind == pod.Allocate
	if r.Failure.Wait == pod.WaitForProcesses {
		waits, once = false, true
	}
	if waits || once && record.Count > 1 {
		return // waiting isn't a failure; a resize and a wait for new processes get only one event
	}
	d.plan.RecordFailure(r)
}

// forget drops records that are obsolete according to the observed state: the action worked although it reported a
// failure, or the action's sandbox or instance doesn't exist any more.
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
			delete(d.mem.Ended, c.ID) // the runtime had reported a running container as ended
			d.mem.Retries.Forget(pod.Action{Kind: pod.StartContainer, Container: c.Name})
		} else if c.Ended() {
			delete(d.mem.Kills, c.ID)
		}
		next := c.Attempt + 1
		if c.State == pod.ContainerCreated {
			next = c.Attempt // it never ran: its replacement gets the same number
		}
		d.mem.Attempts[c.Name] = max(d.mem.Attempts[c.Name], next)
	}
	for i := range d.abortedStarts {
		// An aborted start leaves a log, but the instance never ran.
		c := &d.abortedStarts[i]
		known[c.ID] = true
		if d.mem.Attempts[c.Name] == c.Attempt+1 {
			d.mem.Attempts[c.Name] = c.Attempt
		}
	}
	for _, a := range d.plan.InFlight() {
		gone := false
		switch a.Kind {
		case pod.PostStart:
			m := d.containers.Named(a.Container)
			gone = m == nil || !m.Runs() || m.Current.ID != a.ID
		case pod.PreStop:
			c := d.in.Observed.Instance(a.ID)
			gone = c == nil || c.State != pod.ContainerRunning
		}
		if gone {
			d.plan.GiveUp(a.Target()) // the hook ends together with its container
		}
	}
	d.mem.Retries.Prune(known)
	prune(d.mem.Stopped, known)
	prune(d.mem.Kills, known)
	prune(d.mem.Ended, known)
	d.noteEnds()
	for name, c := range d.checkpoint().Carried {
		d.mem.Attempts[name] = max(d.mem.Attempts[name], c.Attempt)
	}
	d.draft.Forget(known, d.in.Observed)
}

func prune[V any](m map[string]V, known map[string]bool) {
	for id := range m {
		if !known[id] {
			delete(m, id)
		}
	}
}

// takeOverhead prepares the pod again if its overhead has changed since it was prepared, because the pod's cgroup
// depends on the overhead. The overhead changes when the pod's RuntimeClass is created late or edited.
func (d *decider) takeOverhead() {
	p := d.in.Pod
	if p == nil || !d.mem.Prepared || allocated.SameList(p.Spec.Overhead, d.mem.Overhead) {
		return
	}
	d.mem.Prepared = false
	d.forgetSpec()
}

// forgetSpec drops the records of failures that the spec may have caused.
func (d *decider) forgetSpec() {
	images := make([]pod.Action, len(d.containers))
	for i := range d.containers {
		images[i] = ensureImage(&d.containers[i])
	}
	d.mem.Retries.ForgetSpec(images)
}

// takeSpec drops state of an earlier version of the spec: failures and images.
func (d *decider) takeSpec() {
	p := d.in.Pod
	if p == nil || p.Generation == d.mem.Generation {
		return
	}
	if d.mem.Generation != 0 {
		clear(d.mem.Images)
		d.forgetSpec()
	}
	d.mem.Generation = p.Generation
	for _, a := range d.plan.InFlight() {
		c := d.containers.Named(a.Container)
		if a.Kind == pod.AdmitPod || a.Kind == pod.EnsureImage && (c == nil || c.Spec.Image != a.Image) {
			d.plan.GiveUp(a.Target())
		}
	}
}
