package lifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// stop removes the pod: containers, sandboxes, then everything that was prepared for it. Once begun, it is always
// completed.
func (d *decider) stop() {
	s := d.in.Stop
	if !d.in.RequiresTerminalPhase {
		d.giveUp(func(k pod.ActionKind) bool { return k == pod.ReleaseVolumes }) // CleanPod releases volumes as well
	}
	grace := s.Grace
	if grace != nil {
		least := max(*grace, minStopGrace)
		grace = &least
	}
	t := d.terminator.Term(d.dated(s.At), grace, s.Why)
	d.bringForward(&t, d.in.RequiresTerminalPhase && d.anyRuns())
	if !d.tearDown(t) {
		return
	}
	if d.in.RequiresTerminalPhase {
		d.end(s.Why)
		return
	}
	if _, saving := d.plan.Busy("kept"); saving {
		d.plan.AddWait(pod.Wait{Code: pod.WaitPodStop, Message: s.Why, Action: pod.SaveCheckpoint})
		return // otherwise it would write the checkpoint again after CleanPod has removed it
	}
	gone := true
	for i := range d.sandboxes() {
		sb := &d.sandboxes()[i]
		gone = false
		if d.stopSandbox(sb, s.Why) {
			a := pod.Action{Kind: pod.RemoveSandbox, ID: sb.ID, Why: s.Why}
			d.plan.AddRetryWait("", a)
			d.plan.Do(a)
		}
	}
	if !gone {
		// CleanPod has to run again: a sandbox that appeared late may have created files.
		d.mem.Cleaned = false
		d.plan.AddActionWait("", pod.RemoveSandbox)
		return
	}
	if list := d.instances(); len(list) > 0 {
		d.plan.AddActionWait("", pod.RemoveContainer)
		for i := range list {
			a := pod.Action{Kind: pod.RemoveContainer, Container: list[i].Name, ID: list[i].ID,
				Attempt: list[i].Attempt, Why: s.Why}
			d.plan.AddRetryWait(list[i].Name, a)
			d.plan.Do(a)
		}
		return
	}
	if !d.mem.Cleaned {
		a := pod.Action{Kind: pod.CleanPod, Why: s.Why}
		d.plan.AddActionWait("", pod.CleanPod)
		d.plan.AddRetryWait("", a)
		d.plan.Do(a)
		return
	}
	d.done = true
}

// end ends a pod with an object that still exists and without running containers. Its final status is on disk before
// it is reported, so that the next agent reports the same, and is reported before the pod's volumes and cgroup are
// released. The container records and logs stay until the object is gone.
func (d *decider) end(why string) {
	d.stopped = true
	for i := range d.sandboxes() {
		d.stopped = d.stopSandbox(&d.sandboxes()[i], why) && d.stopped
	}
	switch {
	case !d.stopped:
		d.plan.AddWait(pod.Wait{Code: pod.WaitPodStop, Message: why, Action: pod.StopSandbox})
	case !d.mayReportFinal():
		d.plan.AddActionWait("", pod.SaveCheckpoint)
	case !d.mem.Released:
		d.release(why)
	default:
		d.gone = true
		d.plan.AddWait(pod.Wait{Code: pod.WaitObjectGone})
	}
}

// mayReportFinal reports whether the final status exists and may be reported. It may be once it is on disk, so that the
// next agent reports the same, or if it can't be written. In a pod that isn't being removed, the status was already
// reported before it was recorded as final.
func (d *decider) mayReportFinal() bool {
	final := d.checkpoint().Final
	return final != nil && (d.in.Stop == nil || d.draft.Disk != nil && d.draft.Disk.Final != nil ||
		d.durable() || d.mem.FinalTold)
}

// minStopGrace is the minimum grace period of a pod that is removed with a Stop.Grace, so that preStop hooks run.
const minStopGrace = time.Second

// bringForward moves the kill time of t (By) to the earliest end that was ever set for the pod, including ends set
// by terminations and by an earlier agent. If keep is true, it records that end in the checkpoint for the next
// agent.
func (d *decider) bringForward(t *termination.Term, keep bool) {
	shorten := func(v *pod.PodTermination, date func(time.Time) time.Time) {
		if v == nil || v.Grace == nil {
			return
		}
		if by := date(v.At).Add(*v.Grace); by.Before(t.By) {
			t.By = by
		}
	}
	shorten(d.checkpoint().Termination, func(at time.Time) time.Time { return at }) // followClock has dated it
	shorten(d.in.Termination, d.dated)
	by := d.checkpoint().EndBy
	switch {
	case !by.IsZero() && by.Before(t.By):
		t.By = by
	case keep && !by.Equal(t.By):
		d.draft.Change(func(k *pod.Checkpoint) { k.EndBy = t.By })
	}
}

// tearDown stops the pod's containers and cancels actions that create something. It reports whether that is complete.
func (d *decider) tearDown(t termination.Term) bool {
	d.giveUpMaking()
	if !d.terminator.StopAll(t) {
		d.plan.AddWait(pod.Wait{Code: pod.WaitPodStop, Message: t.Why, Next: d.terminator.Last()})
		return false
	}
	// A sandbox or container that is being created has to be observed before it can be removed.
	if kind, making := d.making(); making {
		d.plan.AddWait(pod.Wait{Code: pod.WaitPodStop, Message: t.Why, Action: kind})
		return false
	}
	return true
}

// giveUpMaking cancels the actions that create something for a pod that ends or restarts.
func (d *decider) giveUpMaking() {
	d.giveUp(func(k pod.ActionKind) bool { return k == pod.EnsureImage || makes(k) })
}

// giveUp cancels the actions under way of these kinds.
func (d *decider) giveUp(of func(pod.ActionKind) bool) {
	for _, a := range d.plan.InFlight() {
		if of(a.Kind) {
			d.plan.GiveUp(a.Target())
		}
	}
}

// making returns an action under way that creates something.
func (d *decider) making() (pod.ActionKind, bool) {
	for _, a := range d.plan.InFlight() {
		if makes(a.Kind) || d.mounts(a) {
			return a.Kind, true
		}
	}
	return "", false
}

// mounts reports whether an action may mount volumes for a container that was added to the pod after PreparePod.
// PreparePod mounts the volumes of all other containers, so that their EnsureImage creates nothing for the pod.
func (d *decider) mounts(a pod.Action) bool {
	if a.Kind != pod.EnsureImage {
		return false
	}
	c := d.containers.Named(a.Container)
	return c == nil || c.Role == container.Ephemeral
}

// makes reports whether an action creates something that has to be removed or released later.
func makes(kind pod.ActionKind) bool {
	switch kind {
	case pod.AdmitPod, pod.PreparePod, pod.CreateSandbox, pod.CreateContainer, pod.StartContainer, pod.PostStart,
		pod.Allocate, pod.ResizePod, pod.ResizeContainer:
		return true
	}
	return false
}

// recordTermination records in the checkpoint why the pod has to end although its source still has it: it is evicted
// or preempted, or its deadline has passed. It isn't started again after that.
func (d *decider) recordTermination() {
	if d.checkpoint().Termination == nil && d.in.Termination != nil {
		e := *d.in.Termination
		e.At = d.dated(e.At)
		d.plan.RecordTermination(v1.EventTypeWarning, &e)
		d.draft.Change(func(k *pod.Checkpoint) { k.Termination, k.RestartAll = &e, nil })
	}
	if e := d.checkpoint().Termination; e != nil && e.ByExit && d.in.Termination != nil && !d.in.Termination.ByExit {
		failed := *e // after this second termination the pod is Failed however its containers end
		failed.ByExit = false
		d.draft.Change(func(k *pod.Checkpoint) { k.Termination = &failed })
	}
	if s := d.in.Pod.Spec.ActiveDeadlineSeconds; s != nil && d.checkpoint().Termination == nil {
		at := d.mem.Started.Add(pod.Seconds(*s))
		if d.in.Now.Before(at) {
			d.plan.WakeAt(at)
			d.keepDeadline()
		} else {
			e := &pod.PodTermination{At: d.in.Now, Reason: pod.ReasonDeadlineExceeded,
				Message: apistatus.DeadlineMessage}
			d.plan.RecordTermination(v1.EventTypeNormal, e)
			d.draft.Change(func(k *pod.Checkpoint) { k.Termination, k.RestartAll = e, nil })
		}
	}
}

// terminate stops a pod that has to end. Its phase becomes Failed, or Succeeded if the termination leaves that to the
// exit codes.
func (d *decider) terminate() {
	e := d.checkpoint().Termination
	// A time in the future was recorded before the clock was set back.
	t := d.terminator.Term(pod.AnchoredPast(e.At, d.in.Now), nil, string(e.Reason))
	d.bringForward(&t, !e.Rejected)
	if d.tearDown(t) {
		phase := v1.PodFailed
		if e.ByExit && d.allSucceeded() {
			phase = v1.PodSucceeded
		}
		d.draft.Change(func(k *pod.Checkpoint) { k.Terminal = phase })
		d.finished = true
		d.finish()
	}
}

// allSucceeded reports whether every main container has ended with code 0.
func (d *decider) allSucceeded() bool {
	return !slices.ContainsFunc(d.containers, func(m container.Container) bool {
		return m.Role == container.Main && (m.Newest == nil || !m.Newest.Ended() || container.ExitCode(m.Newest) != 0)
	})
}

// endWhole ends a pod in which no main container will be kept or restarted, because the last one failed a probe. It
// uses the pod's grace period and doesn't restart sidecars meanwhile. endWhole reports whether the pod is being ended
// in this way. The pod's phase depends on how its containers end. If the image of a container that still runs is
// edited, the pod continues after all.
func (d *decider) endWhole() bool {
	if d.renewed() {
		d.mem.Ending, d.terminator.AllBy = time.Time{}, time.Time{}
	}
	if d.mem.Ending.IsZero() {
		if !d.nothingLeft() {
			return false
		}
		d.mem.Ending = d.in.Now
	}
	if d.tearDown(d.terminator.Term(d.mem.Ending, nil, "none of its main containers is kept or started again")) {
		// recordOutcome found no outcome: the record of a container that had ended is gone.
		d.draft.Change(func(k *pod.Checkpoint) { k.Terminal = v1.PodFailed })
		d.finished = true
		d.finish()
	}
	return true
}

// finish stops the rest of a finished pod: sidecars, then the sandbox, then its mounts. Its containers stay, because of
// their logs and exit codes. If the node is short of disk space, they are removed, after the final status has been
// recorded.
func (d *decider) finish() {
	const why = "the pod has run to its end"
	since := d.in.Now
	if !d.mem.Ending.IsZero() {
		since = d.mem.Ending
	}
	t := d.terminator.Term(since, nil, why)
	d.bringForward(&t, d.anyRuns())
	if !d.tearDown(t) {
		return
	}
	stopped := true
	for i := range d.sandboxes() {
		stopped = d.stopSandbox(&d.sandboxes()[i], why) && stopped
	}
	if !d.durable() {
		d.plan.AddActionWait("", pod.SaveCheckpoint)
		return
	}
	d.stopped = stopped && d.mem.Status != nil && pod.Terminal(d.mem.Status.Phase) != "" &&
		slices.ContainsFunc(d.instances(), d.expendable)
	if e := d.checkpoint().Termination; e != nil && e.Rejected {
		d.plan.AddWait(pod.Wait{Code: pod.WaitRejected, Reason: e.Reason})
		return
	}
	d.tidy()
	if stopped {
		d.releaseOnce(why)
	}
}

// releaseOnce releases the resources of a finished pod once no container can use them: its volumes, its cgroup and
// the objects that were watched for it. Containers that the runtime lost track of have ended with their sandbox.
func (d *decider) releaseOnce(why string) {
	if !d.mem.Released {
		d.release(why)
	}
}

func (d *decider) release(why string) {
	a := pod.Action{Kind: pod.ReleaseVolumes, Why: why}
	if !d.plan.AddRetryWait("", a) {
		d.plan.AddActionWait("", a.Kind)
	}
	if d.plan.Do(a) {
		d.mem.Prepared = false
	}
}

// stopSandbox works towards the end of the sandbox, and reports whether it is stopped.
func (d *decider) stopSandbox(sb *pod.Sandbox, why string) bool {
	if d.mem.Stopped[sb.ID] {
		return true
	}
	a := pod.Action{Kind: pod.StopSandbox, ID: sb.ID, Why: why}
	d.plan.AddRetryWait("", a)
	d.plan.Do(a)
	return false
}
