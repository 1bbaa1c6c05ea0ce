package lifecycle

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Memory is what one decision leaves to the next. It is plain data and never
// shared. An agent restart loses all of it but OnDisk.
type Memory struct {
	// Checkpoint is what has to outlive the agent, OnDisk what of it is on disk: the same
	// pointer once it is written. Both are nil for a pod that needs no checkpoint.
	Checkpoint, OnDisk *pod.Checkpoint
	// Admitted says that AdmitPod has succeeded since the agent started.
	Admitted bool
	// Prepared says that PreparePod has succeeded since the agent started, and that
	// ReleaseVolumes wasn't begun since.
	Prepared bool
	// Released says that ReleaseVolumes has succeeded since the agent started.
	Released bool
	// Cleaned says that CleanPod has succeeded.
	Cleaned bool
	// Generation is that of the spec which the last decision was about.
	Generation int64
	// Overhead is the pod's overhead when PreparePod was last begun.
	Overhead v1.ResourceList
	// Images holds, by container, the resolved image that the next instance is created from.
	Images map[string]string
	// Retries holds the failed actions, and when to retry them, by kind and target.
	Retries plan.Retries
	// Initialized is the ID of the sandbox in which all init containers have succeeded and all sidecars started; empty
	// for none.
	Initialized string
	// Ending is since when the pod is ended as a whole, as none of its main containers is to be kept or started again;
	// zero if it isn't.
	Ending time.Time
	// AllBy is that of the Terminator.
	AllBy time.Time
	// Stopped holds the IDs of sandboxes and instances that were stopped, as the runtime
	// may not know their state.
	Stopped map[string]bool
	// Attempts is the least attempt of the next instance by container, known from
	// logs on disk and from what ran: restart counts go on when the runtime has lost
	// its records.
	Attempts map[string]int
	// Kills holds, by instance ID, the termination of those that have to end.
	Kills map[string]termination.Kill
	// Allocated is the allocation that the pod's cgroup was given since the agent started; nil if it wasn't.
	Allocated *pod.Allocation
	// ResizingPod says that ResizePod was begun and hasn't succeeded since: whether the pod's cgroup allows
	// Allocated or what it was to get isn't known.
	ResizingPod bool
	// Asked holds the node's retry triggers as of when each action was begun last.
	Asked map[string]plan.RetryTriggers
	// Resizing says that the event of a resize's start was recorded, and that of its end not yet.
	Resizing bool
	// Status is the last one reported: transition times go on from it, and it keeps the final
	// state of a stopping pod's containers once they are removed.
	Status *v1.PodStatus
	// FinalTold says that Status is Checkpoint.Final.
	FinalTold bool
	// BackoffTold holds, by container, which back-off the last event reported: after
	// which instance, or which failed pull.
	BackoffTold map[string]string
	// Since holds when each wait began, by pod.Wait.Key.
	Since map[string]time.Time
}

func (m Memory) clone() Memory {
	m.Images = cloneMap(m.Images)
	m.Asked = cloneMap(m.Asked)
	m.Retries = cloneMap(m.Retries)
	m.Stopped = cloneMap(m.Stopped)
	m.Attempts = cloneMap(m.Attempts)
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

// durable reports whether the checkpoint is on disk, or can't be written: a full disk must
// not keep a pod down.
func (d *decider) durable() bool {
	_, failing := d.plan.Retrying(pod.Action{Kind: pod.SaveCheckpoint})
	return failing || d.draft.Saved()
}

// save has the checkpoint written, unless the pod is being removed and no source has it.
func (d *decider) save() {
	if d.draft.Saved() || d.in.Stop != nil && !d.in.RequiresTerminalPhase {
		return
	}
	a := pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: d.draft.Now, Why: "it has to outlive the agent"}
	d.plan.AddRetryWait("", a)
	d.plan.Do(a)
}
