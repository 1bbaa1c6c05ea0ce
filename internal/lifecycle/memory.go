package lifecycle

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Memory is the state that one decision leaves to the next. It is plain data and never shared. A restart of the agent
// loses all of it but OnDisk.
type Memory struct {
	// Checkpoint is the state that has to survive the agent, OnDisk its last saved version: both are the same pointer
	// once it is saved, and nil for a pod that needs no checkpoint.
	Checkpoint, OnDisk *pod.Checkpoint
	// Started is when this node first saw the pod, on the monotonic clock: its deadline doesn't move when the wall
	// clock is set. It is zero before the first decision, and without a spec.
	Started time.Time
	// ClockStep is the latest step of the clock before the times in Memory and Checkpoint were determined; zero if
	// there was none.
	ClockStep pod.ClockStep
	// Admitted says that AdmitPod has succeeded since the agent started.
	Admitted bool
	// Prepared says that PreparePod has succeeded since the agent started, and that ReleaseVolumes hasn't been
	// requested after that.
	Prepared bool
	// Released says that ReleaseVolumes has succeeded since the agent started.
	Released bool
	// Cleaned says that CleanPod has removed the files that were prepared for the pod.
	Cleaned bool
	// Generation is the generation of the spec in the last decision.
	Generation int64
	// Overhead is the pod's overhead when PreparePod was last begun.
	Overhead v1.ResourceList
	// Images holds, by container, the resolved image for the next instance.
	Images map[string]string
	// Retries holds the failed actions and their retry times, by kind and target.
	Retries plan.Retries
	// Initialized is the ID of the sandbox in which all init containers have succeeded and all sidecars have started;
	// empty if there is none.
	Initialized string
	// Ending is the time at which the agent began to end the pod as a whole because none of its main containers will
	// be kept or restarted; zero if it hasn't begun.
	Ending time.Time
	// AllBy is when the remaining containers of a stopping pod are killed (termination.Terminator.AllBy); zero if
	// the pod isn't being stopped.
	AllBy time.Time
	// Stopped holds the IDs of sandboxes and instances that were stopped, because the runtime may report their state
	// as unknown.
	Stopped map[string]bool
	// Attempts holds, by container, the lowest attempt number that the next instance may have. It is derived from
	// logs on disk and from earlier instances, so that restart counts continue even if the runtime has lost its
	// records.
	Attempts map[string]int
	// Ended holds the times at which instances ended, by instance ID: for each container's newest instance, because its
	// back-off starts then, and for instances that are kept only for their age (ContainerGC.MinAge).
	Ended map[string]time.Time
	// Kills holds, by instance ID, the terminations of instances that have to end.
	Kills map[string]termination.Kill
	// Allocated is the allocation that was set on the pod's cgroup since the agent started; nil if none was.
	Allocated *pod.Allocation
	// ResizingPod says that ResizePod was begun and hasn't succeeded since: it is unclear whether the pod's cgroup
	// allows Allocated or the requested resources.
	ResizingPod bool
	// Asked holds, by action, the node's retry triggers as they were when the action was last begun.
	Asked map[string]plan.RetryTriggers
	// Resizing says that the event for the start of a resize was recorded, but the event for its end wasn't yet.
	Resizing bool
	// Status is the last reported status: transition times continue from it, and it keeps the final state of a
	// stopping pod's containers after their removal.
	Status *v1.PodStatus
	// FinalTold says that the final status (Checkpoint.Final) may be reported, and that Status is based on it.
	FinalTold bool
	// BackoffTold identifies, by container, the last back-off that a BackOff event reported: by the ID of the ended
	// instance, or by the number of the failed pull.
	BackoffTold map[string]string
	// Since holds the time at which each current wait began, by pod.Wait.Key.
	Since map[string]time.Time
}

func (m Memory) clone() Memory {
	m.Images = cloneMap(m.Images)
	m.Asked = cloneMap(m.Asked)
	m.Retries = cloneMap(m.Retries)
	m.Stopped = cloneMap(m.Stopped)
	m.Attempts = cloneMap(m.Attempts)
	m.Ended = cloneMap(m.Ended)
	m.Kills = cloneMap(m.Kills)
	m.BackoffTold = cloneMap(m.BackoffTold)
	return m
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// durable reports whether the checkpoint is on disk or can't be written: a full disk must not keep a pod down.
func (d *decider) durable() bool {
	_, failing := d.plan.Retrying(pod.Action{Kind: pod.SaveCheckpoint})
	return failing || d.draft.Saved()
}

// save requests that the checkpoint be written, unless the pod is being removed and has no object that still exists.
func (d *decider) save() {
	if d.draft.Saved() || d.in.Stop != nil && !d.in.RequiresTerminalPhase {
		return
	}
	a := pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: d.draft.Now, Why: "it has to outlive the agent"}
	d.plan.AddRetryWait("", a)
	d.plan.Do(a)
}
