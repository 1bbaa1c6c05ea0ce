package lifecycle

import (
	"slices"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// killReason is why one container of a running pod is killed.
type killReason struct {
	cause pod.StopCause
	probe pod.ProbeResult // the result of the failed startup or liveness probe
	grace *int64          // seconds; nil for the pod's grace period
	// renew says that the container is restarted whatever the restart policy is, because its image or resources were
	// edited. An edit takes precedence over a failure.
	renew bool
}

// killReasonOf returns the reason for which a running container has to be killed; false if there is none.
func (d *decider) killReasonOf(m *container.Container) (killReason, bool) {
	if !m.Runs() || !m.LongRunning() {
		return killReason{}, false
	}
	edited := otherImage(m, m.Current)
	if _, failed := d.hookFailed(m.Current); failed {
		return killReason{cause: pod.StopPostStartHook, renew: edited}, true
	}
	if probe, grace, failed := container.FailedProbe(m, d.in.Probes); failed {
		return killReason{cause: pod.StopProbe, probe: probe, grace: grace, renew: edited}, true
	}
	recorded, known := d.recordedKill(m)
	switch {
	case known && recorded.cause == pod.StopProbe:
		recorded.renew = recorded.renew || edited
		return recorded, true
	case edited:
		return killReason{cause: pod.StopImage, renew: true}, true
	case d.resizing.Restarts(m):
		return killReason{cause: pod.StopResize, renew: true}, true
	}
	return recorded, known
}

// recordedKill returns the kill that the checkpoint on disk records for a container. An earlier agent may already have
// sent the signal. So the container has to be killed even if nothing is wrong with it now: if it exited with code 0
// without having been killed, that would count as success. Kills that this agent began are completed by cancelKill.
func (d *decider) recordedKill(m *container.Container) (killReason, bool) {
	id := m.Current.ID
	if d.draft.Disk == nil || d.terminator.Asked(id) {
		return killReason{}, false
	}
	f, failed := d.checkpoint().Failed[id]
	if failed {
		_, failed = d.draft.Disk.Failed[id]
	}
	renew := slices.Contains(d.checkpoint().Renew, id) && slices.Contains(d.draft.Disk.Renew, id)
	switch {
	case failed:
		probe := pod.ProbeResult{Probe: pod.Probe{Container: m.Spec.Name, ID: id, Kind: f.Probe}, Message: f.Message}
		return killReason{cause: f.Cause, probe: probe, grace: container.ProbeGrace(m, f.Probe), renew: renew}, true
	case renew:
		return killReason{cause: pod.StopImage, renew: true}, true
	default:
		return killReason{}, false
	}
}

// hookFailed returns the message of the failure of an instance's postStart hook; false if the hook didn't fail.
func (d *decider) hookFailed(inst *pod.Container) (string, bool) {
	f := d.checkpoint().Failed[inst.ID]
	return f.Message, f.Cause == pod.StopPostStartHook
}

// fail records the failure for which an instance has to end. If a failure of the instance is recorded already, it
// stays.
func (d *decider) fail(id string, f pod.Failed) {
	if _, known := d.checkpoint().Failed[id]; known {
		return
	}
	d.draft.Change(func(k *pod.Checkpoint) {
		if k.Failed == nil {
			k.Failed = map[string]pod.Failed{}
		}
		k.Failed[id] = f
	})
}

// nothingLeft reports whether a main container failed its startup or liveness probe and no other main container will be
// kept or restarted: each of them has ended for good or has to end.
func (d *decider) nothingLeft() bool {
	any := false
	for i := range d.containers {
		m := &d.containers[i]
		switch {
		case m.Role != container.Main:
		case m.Runs():
			kill, ok := d.killReasonOf(m)
			if !ok || kill.renew || slices.Contains(d.checkpoint().Renew, m.Current.ID) ||
				!restart.Never(d.in.Pod, m.Spec) {
				return false
			}
			any = any || kill.cause == pod.StopProbe
		case m.Newest == nil || !m.Newest.Ended() || d.again(m):
			return false
		}
	}
	return any
}

// renewed reports whether a main container was edited and therefore is restarted or will be.
func (d *decider) renewed() bool {
	return slices.ContainsFunc(d.containers, func(m container.Container) bool {
		return m.Role == container.Main && (m.Runs() && otherImage(&m, m.Current) ||
			m.Newest != nil && m.Newest.Ended() && slices.Contains(d.checkpoint().Renew, m.Newest.ID))
	})
}

// cancelKill handles a container that needn't be killed (any more). A kill that was begun is completed, because the
// container may be half stopped. A kill that wasn't begun, such as that of a sidecar waiting for its turn, is dropped.
func (d *decider) cancelKill(m *container.Container) {
	if !m.Runs() {
		return
	}
	id := m.Current.ID
	if k, known := d.mem.Kills[id]; known && !d.terminator.Asked(id) {
		delete(d.mem.Kills, id)
	} else if known {
		d.plan.AddWait(pod.Wait{Code: pod.WaitStopOutlived, Container: m.Spec.Name, Message: k.Why})
		d.terminator.Stop(m.Current, termination.Term{By: k.By, Why: k.Why})
		return
	}
	// A record that isn't on disk yet can't have led to a signal.
	_, failed := d.checkpoint().Failed[id]
	if failed || slices.Contains(d.checkpoint().Renew, id) {
		d.draft.Change(func(k *pod.Checkpoint) {
			k.Renew = slices.DeleteFunc(k.Renew, func(s string) bool { return s == id })
			delete(k.Failed, id)
		})
	}
}

// otherImage reports whether an instance was created from another image than the spec has now.
func otherImage(m *container.Container, inst *pod.Container) bool {
	return inst.Image != "" && inst.Image != m.Spec.Image
}

// mayEndWell reports whether the recorded failure makes a difference if the container exits with code 0: without the
// record, that exit would count as success.
func (d *decider) mayEndWell(m *container.Container) bool {
	after := func(failed bool) restart.Answer { return restart.OnExit(d.in.Pod, m.Spec, m.Role, 0, failed) }
	return after(true) != after(false)
}

// killContainers stops the containers of a running pod that have a reason to be killed.
func (d *decider) killContainers() {
	for i := range d.containers {
		m := &d.containers[i]
		kill, ok := d.killReasonOf(m)
		if !ok {
			d.cancelKill(m)
			continue
		}
		if id := m.Current.ID; kill.renew && !slices.Contains(d.checkpoint().Renew, id) {
			d.draft.Change(func(k *pod.Checkpoint) { k.Renew = append(k.Renew, id) })
		}
		if kill.cause == pod.StopProbe {
			d.fail(m.Current.ID, pod.Failed{Cause: kill.cause, Probe: kill.probe.Kind, Message: kill.probe.Message})
		}
		why := plan.StopMessage(m.Spec.Name, kill.cause, kill.probe.Kind, restart.Never(d.in.Pod, m.Spec) &&
			!kill.renew)
		d.plan.AddWait(pod.Wait{Code: pod.WaitStop, Container: m.Spec.Name, Cause: kill.cause, Probe: kill.probe.Kind,
			Message: why})
		if (kill.renew || d.mayEndWell(m)) && !d.durable() {
			continue // without the record on disk, the container might never be restarted
		}
		grace := d.terminator.Grace()
		if kill.grace != nil {
			grace = pod.Seconds(*kill.grace)
		}
		d.terminator.Stop(m.Current, termination.Term{By: d.in.Now.Add(grace), Why: why, Message: why})
	}
}
