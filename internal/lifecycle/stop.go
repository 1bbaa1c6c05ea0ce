package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/ending"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// stop takes the pod down: containers, sandboxes, then everything that was
// prepared for it. Once begun it is never turned back.
func (d *decider) stop() {
	s := d.in.Stop
	d.giveUp(func(k pod.ActionKind) bool { return k == pod.ReleaseVolumes }) // CleanPod does that as well
	if !d.wind(d.ender.Term(s.At, s.Grace, s.Why)) {
		return
	}
	if _, keeping := d.plan.Busy("kept"); keeping {
		d.plan.Because(plan.Wait{Text: fmt.Sprintf("stopping (%s), waiting for %s to end", s.Why, pod.Keep)})
		return // else it would bring back what is cleaned
	}
	gone := true
	for i := range d.sandboxes() {
		sb := &d.sandboxes()[i]
		gone = false
		if d.stopSandbox(sb, s.Why) {
			a := pod.Action{Kind: pod.RemoveSandbox, ID: sb.ID, Why: s.Why}
			d.plan.BecauseRetried("", a)
			d.plan.Do(a)
		}
	}
	if !gone {
		// One that came late may have brought back what was cleaned.
		d.mem.Cleaned = false
		d.plan.Because(plan.Wait{Text: "the sandbox is being removed"})
		return
	}
	if list := d.instances(); len(list) > 0 {
		d.plan.Because(plan.Wait{Text: "its containers are being removed"})
		for i := range list {
			a := pod.Action{Kind: pod.RemoveContainer, Container: list[i].Name, ID: list[i].ID, Attempt: list[i].Attempt, Why: s.Why}
			d.plan.BecauseRetried(list[i].Name, a)
			d.plan.Do(a)
		}
		return
	}
	if !d.mem.Cleaned {
		a := pod.Action{Kind: pod.CleanPod, Why: s.Why}
		d.plan.Because(plan.Wait{Text: "its folders, cgroup and logs are being removed"})
		d.plan.BecauseRetried("", a)
		d.plan.Do(a)
		return
	}
	d.done = true
}

// wind stops what the pod runs and gives up what is being made. It reports
// whether that is done.
func (d *decider) wind(t ending.Term) bool {
	d.giveUpMaking()
	if !d.ender.StopAll(t) {
		d.plan.Because(plan.Wait{Text: fmt.Sprintf("stopping (%s)", t.Why), Next: d.ender.Last()})
		return false
	}
	// Something that is being made now has to be known before it can be removed.
	if kind, making := d.making(); making {
		d.plan.Because(plan.Wait{Text: fmt.Sprintf("stopping (%s), waiting for %s to end", t.Why, kind)})
		return false
	}
	return true
}

// giveUpMaking cancels what is being made for a pod that ends, or begins anew.
func (d *decider) giveUpMaking() {
	d.giveUp(func(k pod.ActionKind) bool { return k == pod.EnsureImage || makes(k) })
}

// giveUp cancels what is under way of these kinds.
func (d *decider) giveUp(of func(pod.ActionKind) bool) {
	for _, a := range d.plan.InFlight() {
		if of(a.Kind) {
			d.plan.GiveUp(a.Target())
		}
	}
}

// making returns an action under way that makes something.
func (d *decider) making() (pod.ActionKind, bool) {
	for _, a := range d.plan.InFlight() {
		if makes(a.Kind) {
			return a.Kind, true
		}
	}
	return "", false
}

// makes reports whether an action brings about something that has to be taken
// down again.
func makes(kind pod.ActionKind) bool {
	switch kind {
	case pod.PreparePod, pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PostStart,
		pod.Allocate, pod.ResizePod, pod.ResizeContainer:
		return true
	}
	return false
}

// Reason and message of a pod that was active for longer than it may
// (API: activeDeadlineSeconds).
const (
	deadlineExceeded = "DeadlineExceeded"
	deadlineMessage  = "Pod was active on the node longer than the specified deadline"
)

// ending reports whether the pod has to end though it is wanted: by a verdict, or
// because its deadline has passed. That is kept: it isn't started again.
func (d *decider) ending() bool {
	if d.kept().Ending == nil && d.in.Ending != nil {
		e := *d.in.Ending
		d.plan.Event(v1.EventTypeWarning, e.Reason, "", e.Message)
		d.book.Change(func(k *pod.Kept) { k.Ending, k.RestartAll = &e, nil })
	}
	if s := d.in.Pod.Spec.ActiveDeadlineSeconds; s != nil && d.kept().Ending == nil {
		at := d.started.Add(time.Duration(*s) * time.Second)
		if d.in.Now.Before(at) {
			d.plan.WakeAt(at)
		} else {
			d.plan.Event(v1.EventTypeNormal, deadlineExceeded, "", deadlineMessage)
			d.book.Change(func(k *pod.Kept) {
				k.Ending, k.RestartAll = &pod.Ending{At: d.in.Now, Reason: deadlineExceeded, Message: deadlineMessage}, nil
			})
		}
	}
	return d.kept().Ending != nil
}

// end stops a pod that has to end; it stays as failed.
func (d *decider) end() {
	e := d.kept().Ending
	t := d.ender.Term(e.At, e.Grace, e.Reason)
	if later := d.in.Ending; later != nil && later.Grace != nil {
		if by := later.At.Add(*later.Grace); by.Before(t.By) {
			t.By, t.Gentle = by, *later.Grace > 0
		}
	}
	if d.wind(t) {
		d.book.Change(func(k *pod.Kept) { k.Terminal = v1.PodFailed })
		d.finished = true
		d.finish()
	}
}

// finish ends what a finished pod still holds: sidecars, then the sandbox, then what it
// has mounted. Its containers stay, for their logs and exit codes.
func (d *decider) finish() {
	const why = "the pod has run to its end"
	if !d.wind(d.ender.Term(d.in.Now, nil, why)) {
		return
	}
	stopped := true
	for i := range d.sandboxes() {
		stopped = d.stopSandbox(&d.sandboxes()[i], why) && stopped
	}
	if !d.durable() {
		d.plan.Because(plan.Wait{Text: "its end is being written down"})
		return
	}
	d.tidy()
	if stopped {
		d.releaseVolumes(why)
	}
}

// releaseVolumes unmounts what a finished pod has mounted, once no container can use it:
// those that the runtime lost sight of have ended with their sandbox.
func (d *decider) releaseVolumes(why string) {
	if d.mem.Released || len(d.in.Pod.Spec.Volumes) == 0 {
		return
	}
	a := pod.Action{Kind: pod.ReleaseVolumes, Why: why}
	if r, ok := d.plan.Retrying(a); ok {
		d.plan.BecauseFailed("", r)
	} else {
		d.plan.Because(plan.Wait{Text: "its volumes are being unmounted"})
	}
	if d.plan.Do(a) {
		d.mem.Prepared = false
	}
}

// stopSandbox reports whether the sandbox is stopped, and works towards that.
func (d *decider) stopSandbox(sb *pod.Sandbox, why string) bool {
	if d.mem.Stopped[sb.ID] {
		return true
	}
	a := pod.Action{Kind: pod.StopSandbox, ID: sb.ID, Why: why}
	d.plan.BecauseRetried("", a)
	d.plan.Do(a)
	return false
}
