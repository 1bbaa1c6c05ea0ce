// Package storagelimits finds pods that exceed limits of local storage: size limits of emptyDir volumes, and the
// ephemeral-storage limits of their containers (https://kubernetes.io/docs/concepts/storage/ephemeral-storage/). It
// measures and reports; the pods' workers terminate the pods.
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

// Pod is a pod that may be writing to the disk.
type Pod struct {
	// Pod is the pod with its allocated resources.
	Pod *v1.Pod
	// Volumes are its mounted volumes.
	Volumes []volume.Instance
	// Observed has its containers; nil if it has none.
	Observed *pod.Observed
}

// Layers measures the writable layers of containers.
type Layers interface {
	// WritableLayer returns the sizes by container. It omits containers without a measurement.
	WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error)
}

// Meter measures directories. *usage.Meter implements it.
type Meter interface {
	// Assign assigns a quota project to a directory, if the file system supports that; the directory is then measured
	// by its quota. It is called only for volumes of pods with a user namespace.
	Assign(dir string) (bool, error)
	// Measure returns the usage of a directory; with an error, the part that could be measured.
	Measure(ctx context.Context, dir string) (usage.Usage, error)
	// Forget releases a directory that isn't measured any more.
	Forget(dir string)
}

// Evictions counts evictions by eviction signal.
type Evictions interface {
	Evicted(signal string)
}

// Config configures a Manager.
type Config struct {
	// Pods lists the pods that may be writing. It is called only by Run, and must not block.
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

// The intervals between measurements of a pod.
const (
	// period is the kubelet's interval for eviction signals.
	period = 10 * time.Second
	// quietPeriod is for unchanged pods far from their limits: the interval of the kubelet's volume statistics
	// (volumeStatsAggPeriod), on which the kubelet's evictions are based.
	quietPeriod = time.Minute
	// longestPeriod is for pods that take long to measure.
	longestPeriod = 10 * time.Minute
	// gap is the minimum interval between reads of the pod list.
	gap = time.Second
)

// Manager measures pods with limits and evicts those that exceed them. All methods but Run are safe for concurrent
// use.
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

// Changed notifies the Manager that the result of Pods may have changed.
func (mgr *Manager) Changed() { mgr.debounce.Wake() }

// Termination returns the eviction of a pod, or nil. Once set, it doesn't change.
func (mgr *Manager) Termination(uid types.UID) *pod.PodTermination {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	return mgr.terminations[uid]
}

// Use is a pod's usage of local storage.
type Use struct {
	types.NamespacedName
	UID  types.UID
	Used usage.Usage
}

// Uses returns the last measured usage of pods with limits. It omits pods that weren't measured yet or are evicted.
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

// Forget deletes the state of a pod that is gone.
func (mgr *Manager) Forget(uid types.UID) {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	delete(mgr.terminations, uid)
	mgr.drop(uid)
}

// drop ends the measurement of a pod. The caller holds the lock.
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

// Run measures until ctx ends. If no pod has a limit, it sleeps until Changed.
func (mgr *Manager) Run(ctx context.Context) error {
	var measuring sync.WaitGroup
	defer measuring.Wait()
	for {
		began := time.Now()
		due, next := mgr.due(began)
		for _, w := range due {
			measuring.Go(func() {
				mgr.check(ctx, w.pod, w.measurement)
				mgr.debounce.Wake() // so that Run schedules the pod's next measurement
			})
		}
		if !mgr.debounce.Await(ctx, began, next) {
			return nil
		}
	}
}

// measurement is the state of a measured pod.
type measurement struct {
	pod types.NamespacedName
	// next is when the next measurement is due. every is the last interval.
	next  time.Time
	every time.Duration
	// busy means that a measurement is running.
	busy bool
	// used is the last measured usage; zero before the first measurement.
	used     usage.Usage
	measured bool
	// assigned are the volumes that Meter.Assign was called for.
	assigned map[string]bool
	// failure is the last logged error. Only the goroutine that measures the pod uses it.
	failure string
}

type work struct {
	pod         Pod
	measurement *measurement
}

// due returns the pods to measure now, and when the next one is due: zero for never.
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
		case q.busy: // the running measurement wakes Run at its end
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

// check measures a pod and decides about its eviction.
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

// logFailure logs measurement errors when they change.
func (mgr *Manager) logFailure(p *v1.Pod, q *measurement, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != q.failure {
		mgr.Log.Error(err, "The local storage of a pod can't be measured completely; its limits are compared with "+
			"the part that could be measured", "pod", klog.KObj(p), "podUID", p.UID)
	}
	q.failure = text
}

// decide records the measurement, and reports whether the pod is evicted.
func (mgr *Manager) decide(p *v1.Pod, q *measurement, m measured, began time.Time) bool {
	now := time.Now()
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	if mgr.measurements[p.UID] != q {
		mgr.unassign(q) // the pod was dropped meanwhile
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

// schedule sets the time of the next measurement. The nearer the usage is to a limit, the earlier it is; the longer the
// last measurement took, the later.
func (q *measurement) schedule(m measured, now time.Time, took time.Duration) {
	const (
		near      = 0.8
		far       = 0.5
		nearPause = 2 // factors of the duration of a measurement
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
