// Package storagelimit finds out which pods keep more on the node's disk than they may: in
// emptyDir volumes with a size limit, and by the ephemeral-storage limits of their containers
// (https://kubernetes.io/docs/concepts/storage/ephemeral-storage/).
package storagelimit

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/pace"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Pod is a pod that may write to the disk now.
type Pod struct {
	// Pod has its granted resources.
	Pod *v1.Pod
	// Volumes are those of its volumes that are mounted.
	Volumes []volume.Instance
}

// Layers knows what containers wrote to their root file systems.
type Layers interface {
	// WritableLayer returns that by container; those it knows nothing of, as of ended ones, are left out.
	WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error)
}

// Meter measures folders. *usage.Meter is one.
type Meter interface {
	// Assign has a folder's quota project asked from now on, if it has one. It is called
	// for volumes of pods with a user namespace of their own only.
	Assign(dir string) (bool, error)
	// Measure returns what a folder holds; with an error, what is known of that.
	Measure(ctx context.Context, dir string) (usage.Usage, error)
	// Forget says that a folder isn't measured any more.
	Forget(dir string)
}

// Evictions counts verdicts.
type Evictions interface {
	Evicted(signal string)
}

// Config is what a Judge works with.
type Config struct {
	// Pods lists the pods that could write now. It is called by Run only, and must not block.
	Pods   func() []Pod
	Layers Layers
	Meter  Meter
	// Logs is the folder of all pods' logs.
	Logs string
	// Wake is told that there is a verdict for a pod. It must not block.
	Wake      func(types.UID)
	Evictions Evictions
	Log       logr.Logger
}

// The periods of measuring one pod.
const (
	// period is the kubelet's of looking at eviction signals.
	period = 10 * time.Second
	// quietPeriod is for pods far from their limits that didn't change: the period of the kubelet's volume
	// statistics (volumeStatsAggPeriod), which its verdicts are made from.
	quietPeriod = time.Minute
	// longestPeriod is for pods that take long to measure.
	longestPeriod = 10 * time.Minute
	// gap is the least time between two looks at the list of pods.
	gap = time.Second
)

// Judge measures pods that have limits and comes to verdicts about those that don't keep them.
// All methods but Run may be called at any time by anybody.
type Judge struct {
	Config
	pace pace.Pace

	mu       sync.Mutex
	verdicts map[types.UID]*pod.Ending
	cases    map[types.UID]*inquiry
}

// New returns a Judge that does nothing before Run.
func New(c Config) *Judge {
	return &Judge{Config: c, pace: pace.New(gap), verdicts: map[types.UID]*pod.Ending{}, cases: map[types.UID]*inquiry{}}
}

// Changed says that Pods may list others now.
func (j *Judge) Changed() { j.pace.Wake() }

// Ending returns the verdict about a pod; nil if there is none. It doesn't change any more.
func (j *Judge) Ending(uid types.UID) *pod.Ending {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.verdicts[uid]
}

// Use is what a pod keeps on disk.
type Use struct {
	types.NamespacedName
	UID  types.UID
	Kept usage.Usage
}

// Kept returns what pods kept when they were measured last, as far as they have limits. There is nothing of those that weren't
// measured yet, and of those with a verdict.
func (j *Judge) Kept() []Use {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []Use
	for uid, q := range j.cases {
		if q.measured {
			list = append(list, Use{q.pod, uid, q.kept})
		}
	}
	return list
}

// Forget says that a pod is gone.
func (j *Judge) Forget(uid types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.verdicts, uid)
	j.drop(uid)
}

// drop ends the inquiry into a pod.
func (j *Judge) drop(uid types.UID) {
	q, ok := j.cases[uid]
	if !ok {
		return
	}
	delete(j.cases, uid)
	j.unassign(q)
}

func (j *Judge) unassign(q *inquiry) {
	for dir := range q.assigned {
		j.Meter.Forget(dir)
	}
	clear(q.assigned)
}

// Run measures until ctx ends. Where no pod has a limit it sleeps until Changed.
func (j *Judge) Run(ctx context.Context) error {
	var measuring sync.WaitGroup
	defer measuring.Wait()
	for {
		began := time.Now()
		due, next := j.due(began)
		for _, w := range due {
			measuring.Go(func() {
				j.inquire(ctx, w.pod, w.inquiry)
				j.pace.Wake() // it is due again some time
			})
		}
		if !j.pace.Await(ctx, began, next) {
			return nil
		}
	}
}

// inquiry is what is known of a pod that is measured.
type inquiry struct {
	pod types.NamespacedName
	// next is when it is due; every is how long it was due after the time before.
	next  time.Time
	every time.Duration
	// busy says that it is being measured.
	busy bool
	// kept is what the pod kept last; nothing before it was measured once.
	kept     usage.Usage
	measured bool
	// assigned holds the volumes that the meter was asked to ask quotas for.
	assigned map[string]bool
	// trouble is what couldn't be measured last. It is for whoever measures the pod.
	trouble string
}

type work struct {
	pod     Pod
	inquiry *inquiry
}

// due returns the pods that are to be measured now, and when others will be: zero for never.
func (j *Judge) due(now time.Time) (list []work, next time.Time) {
	pods := j.Pods()
	j.mu.Lock()
	defer j.mu.Unlock()
	there := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		uid := p.Pod.UID
		// Critical static pods can't be evicted
		// (https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/).
		if j.verdicts[uid] != nil || grant.Critical(p.Pod) || !limitsOf(p).any() {
			continue
		}
		there[uid] = true
		q := j.cases[uid]
		if q == nil {
			q = &inquiry{pod: types.NamespacedName{Namespace: p.Pod.Namespace, Name: p.Pod.Name}, next: now.Add(period), every: period, assigned: map[string]bool{}}
			j.cases[uid] = q
		}
		switch {
		case q.busy: // its end wakes
		case !q.next.After(now):
			q.busy = true
			list = append(list, work{p, q})
		case next.IsZero() || q.next.Before(next):
			next = q.next
		}
	}
	for uid := range j.cases {
		if !there[uid] {
			j.drop(uid)
		}
	}
	return list, next
}

// inquire measures a pod and takes down what follows.
func (j *Judge) inquire(ctx context.Context, p Pod, q *inquiry) {
	began := time.Now()
	m, err := j.measure(ctx, p, q)
	if ctx.Err() != nil {
		return
	}
	j.complain(p.Pod, q, err)
	if !j.conclude(p.Pod, q, m, began) {
		return
	}
	j.Log.Info("A pod keeps more on disk than it may and has to end", "pod", p.Pod.Name, "namespace", p.Pod.Namespace,
		"uid", p.Pod.UID, "signal", m.excess.signal, "used", m.excess.used, "limit", m.excess.limit.String())
	j.Evictions.Evicted(m.excess.signal)
	j.Wake(p.Pod.UID)
}

// complain logs what couldn't be measured, once.
func (j *Judge) complain(p *v1.Pod, q *inquiry, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != q.trouble {
		j.Log.Error(err, "What a pod keeps on disk isn't known as a whole; its limits are held against what is", "pod", p.Name, "namespace", p.Namespace, "uid", p.UID)
	}
	q.trouble = text
}

// conclude takes down what was measured, and reports whether there is a verdict now.
func (j *Judge) conclude(p *v1.Pod, q *inquiry, m measured, began time.Time) bool {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cases[p.UID] != q {
		j.unassign(q) // it went away meanwhile
		return false
	}
	if m.excess == nil {
		q.schedule(m, now, now.Sub(began))
		return false
	}
	j.drop(p.UID)
	grace := immediately
	j.verdicts[p.UID] = &pod.Ending{At: now, Grace: &grace, Reason: reason, Message: m.excess.message}
	return true
}

// schedule says when the pod is measured again, after it was and that took so long: the nearer it is
// to a limit, the sooner; the longer that takes, the later.
func (q *inquiry) schedule(m measured, now time.Time, took time.Duration) {
	const (
		near      = 0.8
		far       = 0.5
		nearPause = 2 // times as long as measuring takes
		pause     = 10
	)
	quiet := m.kept == q.kept && m.share < far
	q.kept, q.measured, q.busy = m.kept, true, false
	switch {
	case quiet:
		q.every = min(2*q.every, quietPeriod)
	default:
		q.every = period
	}
	factor := pause * took
	if m.share >= near {
		factor = nearPause * took
	}
	q.next = now.Add(min(max(q.every, factor), longestPeriod))
}
