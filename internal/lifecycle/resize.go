package lifecycle

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// measure compares the resources that are requested, allocated and in force.
func (d *decider) measure() {
	if d.mem.Prepared && d.mem.Allocated == nil {
		d.mem.Allocated = d.in.Allocation // PreparePod has set it on the pod's cgroup
	}
	d.resizing = resizing.Measure(d.in.Pod, d.containers, d.in.Allocation, d.mem.Allocated, d.mem.ResizingPod,
		d.checkpoint())
}

// allocatedTo returns the resources for a container's next instance if they differ from the spec's; nil if they
// don't.
func (d *decider) allocatedTo(m *container.Container) *v1.ResourceRequirements {
	if d.in.Allocation == nil {
		return nil
	}
	granted, ok := d.in.Allocation.Containers[m.Spec.Name]
	if !ok || allocated.Same(granted, m.Spec.Resources) {
		return nil
	}
	return &granted
}

// resize works towards the resources of the spec: it requests an allocation, raises the pod's cgroup, resizes the
// containers, and lowers the pod's cgroup.
func (d *decider) resize() {
	r := &d.resizing
	if r.Wanted {
		a := pod.Action{Kind: pod.Allocate, Why: "it was allocated resources for an earlier version of its spec"}
		d.plan.AddRetryWait("", a)
		d.plan.Do(a)
	}
	d.recordResizeEvents()
	if !r.UnderWay() || d.mem.Allocated == nil {
		return
	}
	d.plan.AddWait(pod.Wait{Code: pod.WaitResize})
	allow := func(why string, to *pod.Allocation) {
		a := pod.Action{Kind: pod.ResizePod, PodResources: to, Why: why}
		d.plan.AddRetryWait("", a)
		if d.plan.Do(a) {
			d.mem.ResizingPod = true
		}
	}
	if !r.Raised() {
		allow("it has to allow what its containers get next", r.Meanwhile())
		return
	}
	for _, m := range r.InPlace {
		// The resize is recorded before it is requested: if the agent ends before the response, the container's
		// resources are unknown.
		if id := m.Current.ID; !slices.Contains(d.checkpoint().Resizing, id) {
			d.draft.Change(func(k *pod.Checkpoint) { k.Resizing = append(k.Resizing, id) })
		}
		if !d.durable() {
			continue
		}
		granted := d.in.Allocation.Containers[m.Spec.Name]
		a := pod.Action{Kind: pod.ResizeContainer, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt,
			Resources: &granted, Why: "the spec asks for other resources"}
		if d.in.Allocation.Pod != nil || d.in.Pod.Spec.Resources != nil {
			// The pod-level resources of the spec may not be allocated yet.
			a.PodResources = &pod.Allocation{Pod: d.in.Allocation.Pod}
		}
		d.plan.AddRetryWait(m.Spec.Name, a)
		d.plan.Do(a)
	}
	if len(r.InPlace) == 0 && len(r.Restart) == 0 {
		allow("its containers have what they were allocated", d.in.Allocation)
	}
}

// recordResizeEvents records the events for the start and the end of a resize.
func (d *decider) recordResizeEvents() {
	switch on := d.resizing.UnderWay(); {
	case on && !d.mem.Resizing:
		d.mem.Resizing = true
		d.plan.Record(pod.ReasonResizeStarted)
	case !on && d.mem.Resizing:
		d.mem.Resizing = false
		d.plan.Record(pod.ReasonResizeCompleted)
	}
}

// resizeFailure is the failure of a step of the resize under way.
func (d *decider) resizeFailure() (plan.Retry, bool) {
	if r, ok := d.plan.Retrying(pod.Action{Kind: pod.ResizePod}); ok {
		return r, true
	}
	for _, m := range d.resizing.InPlace {
		if r, ok := d.plan.Retrying(pod.Action{Kind: pod.ResizeContainer, ID: m.Current.ID}); ok {
			return r, true
		}
	}
	return plan.Retry{}, false
}
