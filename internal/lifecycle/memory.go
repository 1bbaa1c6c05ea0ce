package lifecycle

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Memory is what one decision leaves to the next. It is plain data and never
// shared. An agent restart loses all of it but Kept.
type Memory struct {
	// Kept is what has to outlive the agent, Saved what of it is on disk: the same
	// pointer once it is. Both are nil for a pod of which nothing has to be kept.
	Kept, Saved *pod.Kept
	// Prepared says that PreparePod has succeeded since the agent started.
	Prepared bool
	// Cleaned says that CleanPod has succeeded.
	Cleaned bool
	// Generation is that of the spec which the last decision was about.
	Generation int64
	// Images holds, by container, the resolved image that the next instance is made from.
	Images map[string]string
	// Retries holds what failed, and when to try again, by retryKey.
	Retries map[string]Retry
	// Stopped holds the IDs of sandboxes that were stopped.
	Stopped map[string]bool
	// Attempts is the least attempt of the next instance by container, known from
	// logs on disk and from what ran: restart counts go on when the runtime has lost
	// its records.
	Attempts map[string]int
	// Kills holds, by instance ID, what is known of the ending of those that have to end.
	Kills map[string]Kill
	// HookFailed holds, by instance ID, why the postStart hook failed.
	HookFailed map[string]string
	// Granted is what the pod's control group allows, as far as set since the agent started.
	Granted *pod.Allocation
	// RoomSeen is Node.RoomAt as of the last Allocate.
	RoomSeen time.Time
	// Resize is the reason of the resize condition that was told last in an event.
	Resize string
	// Status is the last one told: transition times go on from it, and what a
	// stopping pod's containers came to stays told once they are removed.
	Status *v1.PodStatus
	// BackoffTold holds, by container, the instance whose back-off was told in an event.
	BackoffTold map[string]string
	// Since holds when each reason was first given, by container and text.
	Since map[string]time.Time
}

// Kill is what is known of the ending of one instance.
type Kill struct {
	// By is when it is killed if it hasn't ended before. It only ever comes nearer.
	By time.Time
	// Asked is the time by which a StopContainer under way would kill it; zero if none is.
	Asked time.Time
	// Hooked says that its preStop hook has run, or was given up.
	Hooked bool
	// Gentle says that it had a grace at all: then it gets at least minGrace after
	// its hook or its turn.
	Gentle bool
}

// Retry is one failing action's record.
type Retry struct {
	// Count is how often it failed in a row.
	Count int
	// Failed is when it failed last, At when it may be tried again.
	Failed, At time.Time
	// ID is the sandbox or instance that it failed on, if any.
	ID      string
	Failure pod.Failure
}

func (m Memory) clone() Memory {
	m.Images = cloneMap(m.Images)
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

// nothing is what is kept of a pod of which nothing is.
var nothing = &pod.Kept{}

func (d *decider) kept() *pod.Kept {
	if d.mem.Kept == nil {
		return nothing
	}
	return d.mem.Kept
}

// keep changes what outlives the agent. save has it written.
func (d *decider) keep(change func(*pod.Kept)) {
	k := *d.kept()
	k.Hooked, k.Started, k.Ready, k.Renew = slices.Clone(k.Hooked), slices.Clone(k.Started), slices.Clone(k.Ready), slices.Clone(k.Renew)
	k.Resized, k.Carried = maps.Clone(k.Resized), maps.Clone(k.Carried)
	change(&k)
	d.mem.Kept = &k
}

// saved reports whether everything that has to outlive the agent is on disk.
func (d *decider) saved() bool { return d.mem.Kept == d.mem.Saved }

// save has what is kept written, for a pod that stays.
func (d *decider) save() {
	if d.saved() || d.in.Stop != nil {
		return
	}
	a := pod.Action{Kind: pod.Keep, Kept: d.mem.Kept, Why: "it has to outlive the agent"}
	if r, ok := d.retrying(a); ok {
		d.because(waiting{text: failureText(r), next: r.At, advice: "make room or mend the disk under the root folder"})
	}
	d.do(a)
}

// gone reports whether the runtime has no instance of this ID that may still run.
func (d *decider) gone(id string) bool {
	for i := range d.instances() {
		if c := &d.instances()[i]; c.ID == id {
			return c.Ended()
		}
	}
	return true
}
