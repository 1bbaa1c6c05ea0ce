// Package storagelimits finds the pods that use more local storage than they may: in emptyDir
// volumes with a size limit, and by the ephemeral-storage limits of their containers
// (https://kubernetes.io/docs/concepts/storage/ephemeral-storage/). It measures and reports;
// the core decides to end such pods.
package storagelimits

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Pod is a pod that may write to the disk now.
type Pod struct {
	// Pod has its allocated resources.
	Pod *v1.Pod
	// Volumes are those of its volumes that are mounted.
	Volumes []volume.Instance
}

// Layers knows what containers wrote to their root file systems.
type Layers interface {
	// WritableLayer returns that by container; those it knows nothing of, as of ended ones, are left out.
	WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error)
}

// Meter measures directories. *usage.Meter is one.
type Meter interface {
	// Assign has a directory measured by its quota project from now on, if it has one. It is called
	// only for volumes of pods with a user namespace.
	Assign(dir string) (bool, error)
	// Measure returns the usage of a directory; with an error, the part that is known.
	Measure(ctx context.Context, dir string) (usage.Usage, error)
	// Forget says that a directory isn't measured any more.
	Forget(dir string)
}

// Evictions counts evictions.
type Evictions interface {
	Evicted(signal string)
}

// Config is what a Manager is built from.
type Config struct {
	// Pods lists the pods that could write now. It is called by Run only, and must not block.
	Pods   func() []Pod
	Layers Layers
	Meter  Meter
	// Logs is the directory of all pods' logs.
	Logs string
	// Wake is called when a pod has to be evicted. It must not block.
	Wake      func(types.UID)
	Evictions Evictions
	Log       logr.Logger
}

// The periods of measuring one pod.
const (
	// period is the kubelet's of looking at eviction signals.
	period = 10 * time.Second
	// quietPeriod is for pods far from their limits that didn't change: the period of the kubelet's volume
	// statistics (volumeStatsAggPeriod), which its evictions are based on.
	quietPeriod = time.Minute
	// longestPeriod is for pods that take long to measure.
	longestPeriod = 10 * time.Minute
	// gap is the least time between two looks at the list of pods.
	gap = time.Second
)

// Manager measures pods that have limits and has those evicted that exceed them.
// All methods but Run may be called concurrently at any time.
type Manager struct {
	Config
	debounce wake.Debounce

	mu           sync.Mutex
	terminations map[types.UID]*pod.PodTermination
	measurements map[types.UID]*measurement
}

// New returns a Manager that does nothing before Run.
func New(c Config) *Manager {
	return &Manager{Config: c, debounce: wake.NewDebounce(gap), terminations: map[types.UID]*pod.PodTermination{},
		measurements: map[types.UID]*measurement{}}
}

// Changed says that Pods may list others now.
func (mgr *Manager) Changed() { mgr.debounce.Wake() }

// Termination returns the eviction of a pod; nil if it isn't evicted. It doesn't change once it is there.
func (mgr *Manager) Termination(uid types.UID) *pod.PodTermination {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	return mgr.terminations[uid]
}

// Use is what a pod uses on disk.
type Use struct {
	types.NamespacedName
	UID  types.UID
	Used usage.Usage
}

// Uses returns what pods used when they were measured last, as far as they have limits. It leaves out those that
// weren't measured yet, and those that are evicted.
func (mgr *Manager) Uses() []Use {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	var list []Use
	for uid, q := range mgr.measurements {
		if q.measured {
			list = append(list, Use{q.pod, uid, q.used})
		}
	}
	return list
}

// Forget says that a pod is gone.
func (mgr *Manager) Forget(uid types.UID) {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	delete(mgr.terminations, uid)
	mgr.drop(uid)
}

// drop ends the measurement of a pod.
func (mgr *Manager) drop(uid types.UID) {
	q, ok := mgr.measurements[uid]
	if !ok {
		return
	}
	delete(mgr.measurements, uid)
	mgr.unassign(q)
}

func (mgr *Manager) unassign(q *measurement) {
	for dir := range q.assigned {
		mgr.Meter.Forget(dir)
	}
	clear(q.assigned)
}

// Run measures until ctx ends. Where no pod has a limit it sleeps until Changed.
func (mgr *Manager) Run(ctx context.Context) error {
	var measuring sync.WaitGroup
	defer measuring.Wait()
	for {
		began := time.Now()
		due, next := mgr.due(began)
		for _, w := range due {
			measuring.Go(func() {
				mgr.check(ctx, w.pod, w.measurement)
				mgr.debounce.Wake() // it is due again some time
			})
		}
		if !mgr.debounce.Await(ctx, began, next) {
			return nil
		}
	}
}

// measurement is the state of a pod that is measured.
type measurement struct {
	pod types.NamespacedName
	// next is when it is due; every is how long it was due after the time before.
	next  time.Time
	every time.Duration
	// busy says that it is being measured.
	busy bool
	// used is what the pod used last; zero before it was measured once.
	used     usage.Usage
	measured bool
	// assigned holds the volumes that Meter.Assign was called for.
	assigned map[string]bool
	// failure is what couldn't be measured last. Only the goroutine that measures the pod uses it.
	failure string
}

type work struct {
	pod         Pod
	measurement *measurement
}

// due returns the pods that are to be measured now, and when others will be: zero for never.
func (mgr *Manager) due(now time.Time) (list []work, next time.Time) {
	pods := mgr.Pods()
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	there := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		uid := p.Pod.UID
		// Critical static pods can't be evicted
		// (https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/).
		if mgr.terminations[uid] != nil || allocated.Critical(p.Pod) || !limitsOf(p).any() {
			continue
		}
		there[uid] = true
		q := mgr.measurements[uid]
		if q == nil {
			q = &measurement{pod: types.NamespacedName{Namespace: p.Pod.Namespace, Name: p.Pod.Name},
				next: now.Add(period), every: period, assigned: map[string]bool{}}
			mgr.measurements[uid] = q
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
	for uid := range mgr.measurements {
		if !there[uid] {
			mgr.drop(uid)
		}
	}
	return list, next
}

// check measures a pod and decides whether it is evicted.
func (mgr *Manager) check(ctx context.Context, p Pod, q *measurement) {
	began := time.Now()
	m, err := mgr.measure(ctx, p, q)
	if ctx.Err() != nil {
		return
	}
	mgr.logFailure(p.Pod, q, err)
	if !mgr.decide(p.Pod, q, m, began) {
		return
	}
	mgr.Log.Info("A pod uses more local storage than its limit and is evicted", "pod", klog.KObj(p.Pod),
		"podUID", p.Pod.UID, "signal", m.excess.signal, "used", m.excess.used, "limit", m.excess.limit.String())
	mgr.Evictions.Evicted(m.excess.signal)
	mgr.Wake(p.Pod.UID)
}

// logFailure logs what couldn't be measured, once.
func (mgr *Manager) logFailure(p *v1.Pod, q *measurement, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != q.failure {
		mgr.Log.Error(err, "The local storage of a pod can't be measured completely; its limits are compared with "+
			"the part that is known", "pod", klog.KObj(p), "podUID", p.UID)
	}
	q.failure = text
}

// decide records what was measured, and reports whether the pod is evicted.
func (mgr *Manager) decide(p *v1.Pod, q *measurement, m measured, began time.Time) bool {
	now := time.Now()
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	if mgr.measurements[p.UID] != q {
		mgr.unassign(q) // it went away meanwhile
		return false
	}
	if m.excess == nil {
		q.schedule(m, now, now.Sub(began))
		return false
	}
	mgr.drop(p.UID)
	grace := immediately
	mgr.terminations[p.UID] = &pod.PodTermination{At: now, Grace: &grace, Reason: pod.ReasonEvicted,
		Message: m.excess.message}
	return true
}

// schedule says when the pod is measured again, after it was and that took so long: the nearer it is
// to a limit, the sooner; the longer that takes, the later.
func (q *measurement) schedule(m measured, now time.Time, took time.Duration) {
	const (
		near      = 0.8
		far       = 0.5
		nearPause = 2 // times as long as measuring takes
		pause     = 10
	)
	quiet := m.used == q.used && m.share < far
	q.used, q.measured, q.busy = m.used, true, false
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
