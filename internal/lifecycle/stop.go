package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// stop takes the pod down: containers, sandboxes, then everything that was
// prepared for it. Once begun it is never turned back.
func (d *decider) stop() {
	s := d.in.Stop
	if !d.wind(d.termOf(s.At, s.Grace, s.Why)) {
		return
	}
	gone := true
	for i := range d.sandboxes() {
		sb := &d.sandboxes()[i]
		gone = false
		if d.stopSandbox(sb, s.Why) {
			d.do(pod.Action{Kind: pod.RemoveSandbox, ID: sb.ID, Why: s.Why})
		}
	}
	if !gone {
		// One that came late may have brought back what was cleaned.
		d.mem.Cleaned = false
		d.because(waiting{text: "the sandbox is being removed"})
		return
	}
	if list := d.instances(); len(list) > 0 {
		d.because(waiting{text: "its containers are being removed"})
		for i := range list {
			d.do(pod.Action{Kind: pod.RemoveContainer, Container: list[i].Name, ID: list[i].ID, Attempt: list[i].Attempt, Why: s.Why})
		}
		return
	}
	if !d.mem.Cleaned {
		a := pod.Action{Kind: pod.CleanPod, Why: s.Why}
		d.because(waiting{text: "its folders, cgroup and logs are being removed"})
		d.tellRetry(a)
		d.do(a)
		return
	}
	d.out.Done = true
}

// wind stops what the pod runs and gives up what is being made. It reports
// whether that is done.
func (d *decider) wind(t term) bool {
	for _, a := range d.in.InFlight {
		if a.Kind == pod.EnsureImage || makes(a.Kind) && a.Kind != pod.Keep {
			d.cancel(a.Target())
		}
	}
	if !d.stopContainers(t) {
		d.because(waiting{text: fmt.Sprintf("stopping (%s)", t.why), next: d.lastKill()})
		return false
	}
	// Something that is being made now has to be known before it can be removed.
	for _, a := range d.in.InFlight {
		if makes(a.Kind) {
			d.because(waiting{text: fmt.Sprintf("stopping (%s), waiting for %s to end", t.why, a.Kind)})
			return false
		}
	}
	return true
}

// lastKill is when the last of what has to end is killed; zero if that is due.
func (d *decider) lastKill() (at time.Time) {
	for _, k := range d.mem.Kills {
		if k.By.After(at) && k.By.After(d.in.Now) {
			at = k.By
		}
	}
	return at
}

// makes reports whether an action brings about something that has to be taken
// down again.
func makes(kind pod.ActionKind) bool {
	switch kind {
	case pod.PreparePod, pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PostStart,
		pod.Keep, pod.Allocate, pod.ResizePod, pod.ResizeContainer:
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
		d.keep(func(k *pod.Kept) { k.Ending = &e })
	}
	if s := d.in.Pod.Spec.ActiveDeadlineSeconds; s != nil && d.kept().Ending == nil {
		at := d.startTime().Add(time.Duration(*s) * time.Second)
		if d.in.Now.Before(at) {
			d.wakeAt(at)
		} else {
			d.event(v1.EventTypeNormal, deadlineExceeded, "", deadlineMessage)
			d.keep(func(k *pod.Kept) {
				k.Ending = &pod.Ending{At: d.in.Now, Reason: deadlineExceeded, Message: deadlineMessage}
			})
		}
	}
	return d.kept().Ending != nil
}

// end stops a pod that has to end; it stays as failed.
func (d *decider) end() {
	e := d.kept().Ending
	t := d.termOf(e.At, e.Grace, e.Reason)
	if later := d.in.Ending; later != nil && later.Grace != nil {
		if by := later.At.Add(*later.Grace); by.Before(t.by) {
			t.by, t.gentle = by, *later.Grace > 0
		}
	}
	if d.wind(t) {
		d.keep(func(k *pod.Kept) { k.Terminal = v1.PodFailed })
		d.finished = true
		d.finish()
	}
}

// finish ends what a finished pod still holds: sidecars, then the sandbox. Its
// containers stay, for their logs and exit codes.
func (d *decider) finish() {
	const why = "the pod has run to its end"
	if !d.stopContainers(d.termOf(d.in.Now, nil, why)) {
		d.because(waiting{text: "its last containers are being stopped"})
		return
	}
	for i := range d.sandboxes() {
		d.stopSandbox(&d.sandboxes()[i], why)
	}
}
