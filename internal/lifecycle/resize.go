package lifecycle

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// measure compares what is asked for, granted and in force.
func (d *decider) measure() {
	if d.mem.Prepared && d.mem.Granted == nil {
		d.mem.Granted = d.in.Allocation // PreparePod was the first to grant
	}
	d.resizing = resizing.Measure(d.in.Pod, d.members, d.in.Allocation, d.mem.Granted, d.kept())
}

// grantedTo is what a member's next instance is made with, if that isn't what the spec says.
func (d *decider) grantedTo(m *member.Member) *v1.ResourceRequirements {
	if d.in.Allocation == nil {
		return nil
	}
	granted, ok := d.in.Allocation.Containers[m.Spec.Name]
	if !ok || grant.Same(granted, m.Spec.Resources) {
		return nil
	}
	return &granted
}

// resize works towards what the spec asks for: it has it granted, raises the
// pod's control group, resizes the containers, and lowers the pod's group.
func (d *decider) resize() {
	r := &d.resizing
	if r.Wanted {
		a := pod.Action{Kind: pod.Allocate, Why: "it was granted resources for an earlier version of its spec"}
		if failed, ok := d.plan.Retrying(a); ok {
			d.plan.Because(plan.Wait{Text: fmt.Sprintf("a resize waits: %s", failed.Text()), Next: failed.At, Advice: plan.Advice(failed.Failure.Reason)})
		}
		d.plan.Do(a)
	}
	d.tellResize()
	if !r.UnderWay() || d.mem.Granted == nil {
		return
	}
	d.plan.Because(plan.Wait{Text: "is being resized"})
	allow := func(why string, to *pod.Allocation) {
		a := pod.Action{Kind: pod.ResizePod, PodResources: to, Why: why}
		d.plan.BecauseRetried("", a)
		d.plan.Do(a)
	}
	if !r.Raised() {
		allow("it has to allow what its containers get next", r.Meanwhile())
		return
	}
	for _, m := range r.InPlace {
		// Were the answer lost, or the agent killed, nobody would know what it has.
		if id := m.Current.ID; !slices.Contains(d.kept().Resizing, id) {
			d.book.Change(func(k *pod.Kept) { k.Resizing = append(k.Resizing, id) })
		}
		if !d.durable() {
			continue
		}
		granted := d.in.Allocation.Containers[m.Spec.Name]
		a := pod.Action{Kind: pod.ResizeContainer, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt, Resources: &granted, Why: "the spec asks for other resources"}
		if d.in.Allocation.Pod != nil || d.in.Pod.Spec.Resources != nil {
			// What the spec says may not be granted yet.
			a.PodResources = &pod.Allocation{Pod: d.in.Allocation.Pod}
		}
		d.plan.BecauseRetried(m.Spec.Name, a)
		d.plan.Do(a)
	}
	if len(r.InPlace) == 0 && len(r.Restart) == 0 {
		allow("its containers have what they were granted", d.in.Allocation)
	}
}

// tellResize gives the events of a resize's beginning and end.
func (d *decider) tellResize() {
	switch on := d.resizing.UnderWay(); {
	case on && !d.mem.Resizing:
		d.mem.Resizing = true
		d.plan.Event(v1.EventTypeNormal, "ResizeStarted", "", "Pod resize started")
	case !on && d.mem.Resizing:
		d.mem.Resizing = false
		d.plan.Event(v1.EventTypeNormal, "ResizeCompleted", "", "Pod resize completed")
	}
}

// resizeTrouble is the failure of a step of a resize that is under way.
func (d *decider) resizeTrouble() (plan.Retry, bool) {
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
