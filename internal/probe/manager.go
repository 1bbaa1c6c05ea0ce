package probe

import (
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// never is a deadline for nothing.
const never = time.Duration(math.MaxInt64)

// Manager runs the probes that are wanted. Its methods may be called
// concurrently, before, during and after Run; none but Run blocks.
type Manager struct {
	opts Options
	// born is when the manager was made. Inside, times are durations since then: they
	// are monotonic, so that setting the clock moves no deadline.
	born time.Time
	// kick wakes the scheduler before its timer.
	kick chan struct{}
	// crew waits for the goroutines that carry out tries.
	crew sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*subject
	// late has the entries that are no longer wanted while a try of theirs is under way.
	late map[lateKey]*entry
	due  deadlines
	// armed is when the scheduler looks again without being kicked.
	armed time.Duration
	// network and exec bound how many tries run at once.
	network, exec lane
	// idle has the hands without work, the one that has been idle longest first.
	idle    []*hand
	stopped bool
}

// subject is one pod that has, or had, probes to run.
type subject struct {
	uid     types.UID
	pod     *v1.Pod
	ip      string
	entries []*entry
	// results is replaced, never changed: callers of Results hold on to it.
	results []pod.ProbeResult
}

// lateKey names a probe of a container instance among those of all pods.
type lateKey struct {
	uid   types.UID
	probe pod.Probe
}

// New constructs a manager; Run starts it. A container that was started before
// this call counts as one that this agent found running.
func New(o Options) *Manager {
	o = o.withDefaults()
	return &Manager{
		opts:    o,
		born:    time.Now(),
		kick:    make(chan struct{}, 1),
		pods:    map[types.UID]*subject{},
		late:    map[lateKey]*entry{},
		armed:   never,
		network: lane{limit: o.MaxParallel},
		exec:    lane{limit: o.MaxExec},
	}
}

// Want replaces the set of probes that should run for a pod. p and o are immutable
// snapshots; podIP is what http, tcp and grpc probes connect to. A probe that was
// wanted before, of the same container instance, goes on as it was with the new p
// and podIP. One that is no longer wanted is cut short, and its result is gone.
//
// A new probe is first tried once initialDelaySeconds have passed since its
// container's start. If the container ran before the manager was made, that first
// try is spread over the period, so that a restart of the agent isn't followed by
// all probes of the node at once; not so after a startup probe, whose success is
// what others wait for.
//
// A startup probe isn't tried again after its result, nor a liveness probe after
// its failure, for as long as it stays wanted.
func (m *Manager) Want(uid types.UID, p *v1.Pod, o *pod.Observed, podIP string, probes []pod.Probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.pods[uid]
	if s == nil {
		if len(probes) == 0 {
			return
		}
		s = &subject{uid: uid}
		m.pods[uid] = s
	}
	if len(probes) > 0 {
		s.pod, s.ip = p, podIP
	}
	before := s.entries
	s.entries = make([]*entry, 0, len(probes))
	for _, key := range probes {
		c := pod.ContainerNamed(p, key.Container)
		if c == nil || specOf(c, key.Kind) == nil {
			m.opts.Log.Info("A probe is wanted that the pod doesn't have; it isn't run", "pod", pod.FullName(p), "container", key.Container, "kind", key.Kind)
			continue
		}
		if find(s.entries, key) != nil {
			continue // named twice
		}
		e := find(before, key)
		if e == nil {
			e = m.begun(s, key, specOf(c, key.Kind), o, before)
		}
		e.container, e.spec = c, specOf(c, key.Kind)
		s.entries = append(s.entries, e)
	}
	for _, e := range before {
		if !slices.Contains(s.entries, e) {
			m.drop(e)
		}
	}
	s.collect()
}

// Results returns what the wanted probes of a pod have come to; nil if none has yet.
// The slice must not be changed.
func (m *Manager) Results(uid types.UID) []pod.ProbeResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.pods[uid]; s != nil {
		return s.results
	}
	return nil
}

// Forget ends all probing of a pod that is over.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.pods[uid]
	if s == nil {
		return
	}
	delete(m.pods, uid)
	for _, e := range s.entries {
		m.drop(e)
	}
	for _, list := range [...][]v1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
		for i := range list {
			for _, kind := range [...]pod.ProbeKind{pod.ProbeStartup, pod.ProbeLiveness, pod.ProbeReadiness} {
				if specOf(&list[i], kind) != nil {
					m.opts.Meter.Dropped(s.pod, list[i].Name, kind)
				}
			}
		}
	}
}

// find returns the entry of this key, or nil.
func find(entries []*entry, key pod.Probe) *entry {
	for _, e := range entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

// begun returns a new entry with a deadline. before are the pod's entries until now.
func (m *Manager) begun(s *subject, key pod.Probe, spec *v1.Probe, o *pod.Observed, before []*entry) *entry {
	afterStartup := slices.ContainsFunc(before, func(e *entry) bool {
		return e.key.ID == key.ID && e.key.Kind == pod.ProbeStartup
	})
	due := m.first(spec, startOf(o, key.ID), afterStartup)
	if e := m.late[lateKey{s.uid, key}]; e != nil {
		// A try of its former life is still under way, though cancelled. There must not
		// be a second one beside it, and what comes of it doesn't count.
		delete(m.late, lateKey{s.uid, key})
		*e = entry{key: key, owner: s, wanted: true, phase: running, due: due, cancel: e.cancel}
		return e
	}
	e := &entry{key: key, owner: s, wanted: true}
	m.await(e, due)
	return e
}

// first returns when a new probe is to be tried first.
func (m *Manager) first(spec *v1.Probe, started time.Time, afterStartup bool) time.Duration {
	wall := time.Now()
	now := wall.Sub(m.born)
	delay := time.Duration(spec.InitialDelaySeconds) * time.Second
	left, adopted := delay, false
	if !started.IsZero() {
		// The runtime's times are of the wall clock. Where that was set back in between,
		// a start in the future must not put off the probe by more than its delay.
		left = min(delay, delay-wall.Round(0).Sub(started))
		adopted = started.Before(wall.Round(0).Add(-now))
	}
	due := now
	if left > 0 {
		due += left + slack // not too early: who sets a delay knows why
	}
	if adopted && !afterStartup {
		due = max(due, now+m.opts.Spread(period(spec)))
	}
	return due
}

// startOf returns when the container instance was started; zero if unknown.
func startOf(o *pod.Observed, id string) time.Time {
	if o == nil {
		return time.Time{}
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.ID == id {
			return c.StartedAt.Round(0)
		}
	}
	return time.Time{}
}

// drop ends a probe that is no longer wanted.
func (m *Manager) drop(e *entry) {
	e.wanted = false
	switch e.phase {
	case waiting:
		m.due.remove(e)
	case running:
		m.late[lateKey{e.owner.uid, e.key}] = e
		e.cancel()
	case queued, held:
		// A hand that comes to it passes it over.
	}
}

// await has the probe tried when it is due.
func (m *Manager) await(e *entry, due time.Duration) {
	e.due, e.phase = due, waiting
	m.due.add(e)
	m.lookBy(due)
}

// lookBy makes sure that the scheduler looks again at t at the latest.
func (m *Manager) lookBy(t time.Duration) {
	if t >= m.armed {
		return
	}
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// now is the time inside the manager.
func (m *Manager) now() time.Duration { return time.Since(m.born) }
