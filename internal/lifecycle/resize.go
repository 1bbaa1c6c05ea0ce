package lifecycle

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// resizing is what is still to be done until a pod has the resources that its
// spec asks for (KEP-1287).
type resizing struct {
	// wanted says that the spec asks for others than are granted.
	wanted bool
	// inPlace are running containers to be given what is granted, restart those
	// that have to be restarted for it, by their resizePolicy.
	inPlace []*member.Member
	restart []*member.Member
	// pod says that the pod's control group allows something else than is granted.
	pod bool
}

func (r *resizing) underWay() bool { return len(r.inPlace) > 0 || len(r.restart) > 0 || r.pod }

// measure compares what is asked for, granted and in force.
func (d *decider) measure() {
	a := d.in.Allocation
	if a == nil {
		return
	}
	// Also a spec that asks again for what is granted is asked about: an earlier
	// wish may still be waiting for room.
	d.resizing.wanted = a.Generation != d.in.Pod.Generation
	for i := range d.members {
		m := &d.members[i]
		if !m.Runs() || !m.Probes() {
			continue
		}
		granted, ok := a.Containers[m.Spec.Name]
		if !ok {
			continue
		}
		cpu, memory := grant.Changed(d.actual(m.Current), granted)
		switch {
		case !cpu && !memory:
		case cpu && restartsFor(m.Spec, v1.ResourceCPU) || memory && restartsFor(m.Spec, v1.ResourceMemory):
			d.resizing.restart = append(d.resizing.restart, m)
		default:
			d.resizing.inPlace = append(d.resizing.inPlace, m)
		}
	}
	if d.mem.Prepared && d.mem.Granted == nil {
		d.mem.Granted = a // PreparePod was the first to grant
	}
	d.resizing.pod = d.mem.Granted != nil && d.mem.Granted != a && !grant.Equal(d.mem.Granted, a)
}

// actual are the resources that an instance has: those it was made with, or was
// given later.
func (d *decider) actual(inst *pod.Container) v1.ResourceRequirements {
	if r, ok := d.kept().Resized[inst.ID]; ok {
		return r
	}
	if inst.Made == nil {
		return v1.ResourceRequirements{}
	}
	return inst.Made.Resources
}

func restartsFor(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// resizeRestarts reports whether a container has to be restarted to be resized,
// and the pod has room for it.
func (d *decider) resizeRestarts(m *member.Member) bool {
	for _, r := range d.resizing.restart {
		if r == m {
			return d.raised()
		}
	}
	return false
}

// raised reports whether the pod's control group allows what is granted: it is
// raised before its containers and lowered after them, so that limits never cross.
func (d *decider) raised() bool {
	return d.mem.Granted != nil && grant.Equal(grant.Most(d.mem.Granted, d.in.Allocation), d.mem.Granted)
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

// mostAllowed is what the control group of a pod has to allow when it is prepared:
// what is granted, and what its running containers still have.
func (d *decider) mostAllowed() *pod.Allocation {
	a := d.in.Allocation
	if a == nil {
		return nil
	}
	actual := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]*member.Member{d.resizing.inPlace, d.resizing.restart} {
		for _, m := range list {
			actual.Containers[m.Spec.Name] = d.actual(m.Current)
		}
	}
	if len(actual.Containers) == 0 {
		return a
	}
	return grant.Most(actual, a)
}

// resize works towards what the spec asks for: it has it granted, raises the
// pod's control group, resizes the containers, and lowers the pod's group.
func (d *decider) resize() {
	r := &d.resizing
	if r.wanted {
		a := pod.Action{Kind: pod.Allocate, Why: "it was granted resources for an earlier version of its spec"}
		if failed, ok := d.retrying(a); ok {
			d.because(waiting{text: fmt.Sprintf("a resize waits: %s", failureText(failed)), next: failed.At, advice: advice[failed.Failure.Reason]})
		}
		if d.do(a) {
			d.mem.RoomSeen = d.in.Node.RoomAt
		}
	}
	d.tellResize()
	if !r.underWay() || d.mem.Granted == nil {
		return
	}
	d.because(waiting{text: "is being resized"})
	allow := func(why string, to *pod.Allocation) {
		a := pod.Action{Kind: pod.ResizePod, PodResources: to, Why: why}
		d.tellRetry(a)
		d.do(a)
	}
	if !d.raised() {
		allow("it has to allow what its containers get next", grant.Most(d.mem.Granted, d.in.Allocation))
		return
	}
	for _, m := range r.inPlace {
		granted := d.in.Allocation.Containers[m.Spec.Name]
		a := pod.Action{Kind: pod.ResizeContainer, Container: m.Spec.Name, ID: m.Current.ID, Attempt: m.Current.Attempt, Resources: &granted, Why: "the spec asks for other resources"}
		if failed, ok := d.retrying(a); ok {
			d.becauseFailed(m.Spec.Name, failed)
		}
		d.do(a)
	}
	if len(r.inPlace) == 0 && len(r.restart) == 0 {
		allow("its containers have what they were granted", d.in.Allocation)
	}
}

// tellResize gives the events of a resize's beginning and end.
func (d *decider) tellResize() {
	switch on := d.resizing.underWay(); {
	case on && d.mem.Resize == "":
		d.mem.Resize = resizeInProgress
		d.event(v1.EventTypeNormal, "ResizeStarted", "", "Pod resize started")
	case !on && d.mem.Resize != "":
		d.mem.Resize = ""
		d.event(v1.EventTypeNormal, "ResizeCompleted", "", "Pod resize completed")
	}
}

const resizeInProgress = "InProgress"

// resizeTrouble is the failure of a step of a resize that is under way.
func (d *decider) resizeTrouble() (Retry, bool) {
	if r, ok := d.retrying(pod.Action{Kind: pod.ResizePod}); ok {
		return r, true
	}
	for _, m := range d.resizing.inPlace {
		if r, ok := d.retrying(pod.Action{Kind: pod.ResizeContainer, ID: m.Current.ID}); ok {
			return r, true
		}
	}
	return Retry{}, false
}
