package lifecycle

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/ending"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Memory is what one decision leaves to the next. It is plain data and never
// shared. An agent restart loses all of it but Kept.
type Memory struct {
	// Kept is what has to outlive the agent, Saved what of it is on disk: the same
	// pointer once it is. Both are nil for a pod of which nothing has to be kept.
	Kept, Saved *pod.Kept
	// Prepared says that PreparePod has succeeded since the agent started, and that
	// ReleaseVolumes wasn't begun since.
	Prepared bool
	// Released says that ReleaseVolumes has succeeded since the agent started.
	Released bool
	// Cleaned says that CleanPod has succeeded.
	Cleaned bool
	// Generation is that of the spec which the last decision was about.
	Generation int64
	// Overhead is what the pod took beside its containers when PreparePod was begun last.
	Overhead v1.ResourceList
	// Images holds, by container, the resolved image that the next instance is made from.
	Images map[string]string
	// Retries holds what failed, and when to try again, by kind and target.
	Retries plan.Retries
	// Stopped holds the IDs of sandboxes and instances that were stopped: so it is
	// known of those whose state the runtime doesn't know.
	Stopped map[string]bool
	// Attempts is the least attempt of the next instance by container, known from
	// logs on disk and from what ran: restart counts go on when the runtime has lost
	// its records.
	Attempts map[string]int
	// Kills holds, by instance ID, what is known of the ending of those that have to end.
	Kills map[string]ending.Kill
	// HookFailed holds, by instance ID, why the postStart hook failed.
	HookFailed map[string]string
	// Granted is what the pod's control group allows, as far as set since the agent started.
	Granted *pod.Allocation
	// Asked holds the node's news as of when each kind of action was begun last.
	Asked map[string]plan.News
	// Resizing says that the beginning of a resize was told in an event, and its end not yet.
	Resizing bool
	// Status is the last one told: transition times go on from it, and what a
	// stopping pod's containers came to stays told once they are removed.
	Status *v1.PodStatus
	// BackoffTold holds, by container, which back-off was told last in an event: after
	// which instance, or which failed pull.
	BackoffTold map[string]string
	// Since holds when each reason was first given, by container and text.
	Since map[string]time.Time
}

func (m Memory) clone() Memory {
	m.Images = cloneMap(m.Images)
	m.Asked = cloneMap(m.Asked)
	m.Retries = cloneMap(m.Retries)
	m.Stopped = cloneMap(m.Stopped)
	m.Attempts = cloneMap(m.Attempts)
	m.Kills = cloneMap(m.Kills)
	m.HookFailed = cloneMap(m.HookFailed)
	m.BackoffTold = cloneMap(m.BackoffTold)
	return m
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// durable reports whether what has to outlive the agent is on disk, or can't be
// brought there: a full disk must not keep a pod down.
func (d *decider) durable() bool {
	_, failing := d.plan.Retrying(pod.Action{Kind: pod.Keep})
	return failing || d.book.Saved()
}

// save has what is kept written, for a pod that stays.
func (d *decider) save() {
	if d.book.Saved() || d.in.Stop != nil {
		return
	}
	a := pod.Action{Kind: pod.Keep, Kept: d.book.Now, Why: "it has to outlive the agent"}
	if r, ok := d.plan.Retrying(a); ok {
		d.plan.Because(plan.Wait{Text: r.Text(), Next: r.At, Advice: "make room or mend the disk under the root folder"})
	}
	d.plan.Do(a)
}
