package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

const (
	// resumeGap is the time between the restarts of two evicted pods: each restart may cause pressure on the node
	// again.
	resumeGap = 10 * time.Second
	// resumeRetry is the time until a failed restart is tried again.
	resumeRetry = time.Minute
	// firstHold and longestHold are the minimum and the maximum of resumption.hold. A pod that is evicted again soon
	// after its restart has to wait twice as long for its next restart.
	firstHold, longestHold = 5 * time.Minute, 80 * time.Minute
)

// Resumer restarts pods that the node evicted because of pressure, once the pressure has ended: one at a time, those of
// the highest priority first. It is for machines without a cluster, where no controller creates another pod.
type Resumer struct {
	ResumerConfig
	// resumed has the last restart of each pod, as long as it delays the next restart. last is the time of the last
	// attempt to restart any pod.
	resumed map[types.NamespacedName]resumption
	last    time.Time
	failed  logging.LastError
}

// ResumerConfig configures a Resumer. Every field is required.
type ResumerConfig struct {
	Statuses *podstatus.Store
	// Calm reports whether the node isn't under pressure. Watch returns a channel that receives after each change of
	// the result of Calm, until stop is called.
	Calm  func() bool
	Watch func() (changed <-chan struct{}, stop func())
	// Restart restarts a pod, unless a user has stopped it. It doesn't wait for the pod's end.
	Restart func(types.NamespacedName) error
	Log     logr.Logger
}

// resumption is the restart of a pod.
type resumption struct {
	at time.Time
	// hold is the minimum time until the pod may be restarted again.
	hold time.Duration
}

// NewResumer returns a Resumer of these pods.
func NewResumer(c ResumerConfig) *Resumer {
	return &Resumer{ResumerConfig: c, resumed: map[types.NamespacedName]resumption{}}
}

// Run restarts pods until ctx ends. The error is nil.
func (r *Resumer) Run(ctx context.Context) error {
	changed, stop := r.Statuses.Follow()
	defer stop()
	pressure, stopPressure := r.Watch()
	defer stopPressure()
	for {
		var due <-chan time.Time
		if next := r.resume(time.Now()); next > 0 {
			due = time.After(next)
		}
		for evicted := false; !evicted; {
			select {
			case <-ctx.Done():
				return nil
			case <-pressure:
				evicted = true
			case <-due:
				evicted = true
			case <-changed.Woken():
				// Most changes concern pods that weren't evicted.
				evicted = slices.ContainsFunc(changed.Drain(), func(uid types.UID) bool {
					e := r.Statuses.Get(uid)
					return e != nil && resumes(e)
				})
			}
		}
	}
}

func resumes(e *podstatus.Entry) bool {
	return !e.Report.Stopping && podstatus.Resumes(e.Pod, e.Report.Desired.Source)
}

// resume restarts one evicted pod, if there is one and the node isn't under pressure. It returns the time until another
// pod may be restarted; 0 if there is none.
func (r *Resumer) resume(now time.Time) time.Duration {
	if !r.Calm() {
		return 0
	}
	maps.DeleteFunc(r.resumed, func(_ types.NamespacedName, l resumption) bool { return now.Sub(l.at) >= 2*l.hold })
	var first *podstatus.Entry
	next := time.Duration(0)
	for _, e := range r.Statuses.List() {
		if !resumes(e) {
			continue
		}
		last := r.resumed[nameOf(e)]
		left := last.at.Add(last.hold).Sub(now)
		switch {
		case left <= 0 && (first == nil || pod.Priority(e.Pod) > pod.Priority(first.Pod)):
			first = e
		case left > 0 && (next == 0 || left < next):
			next = left
		}
	}
	if first == nil {
		return next
	}
	if left := r.last.Add(resumeGap).Sub(now); left > 0 {
		return left
	}
	r.last = now
	name := nameOf(first)
	if err := r.Restart(name); err != nil {
		r.failed.Log(r.Log, err, "Evicted pods can't be restarted now; this is tried again")
		return resumeRetry
	}
	r.failed.Clear()
	r.Log.Info("The node has enough again: a pod that it has evicted is restarted",
		"pod", klog.KRef(name.Namespace, name.Name))
	r.resumed[name] = resumption{now, min(max(2*r.resumed[name].hold, firstHold), longestHold)}
	return resumeGap
}

func nameOf(e *podstatus.Entry) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
}
