package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Want replaces the set of probes that should run for a pod. p and o are immutable
// snapshots; podIP is what http, tcp and grpc probes connect to. A probe that was
// wanted before, of the same container instance, goes on as it was with the new p
// and podIP. One that is no longer wanted is cancelled, and its result is dropped.
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
	s.round++
	s.index(len(probes))
	r := request{pod: p, observed: o, subject: s, before: s.entries}
	s.entries = make([]*entry, 0, len(probes))
	for _, key := range probes {
		m.want(&r, key)
	}
	for _, e := range r.before {
		if e.last != s.round {
			delete(s.byKey, e.key)
			m.drop(e)
		}
	}
}

// request is what one call of Want is about.
type request struct {
	pod      *v1.Pod
	observed *pod.Observed
	subject  *subject
	// before are the pod's entries until now.
	before []*entry
	// containers and starts are there where searching for each probe would take long.
	containers map[string]*v1.Container
	starts     map[string]time.Time
}

// want adds one of the probes that are wanted.
func (m *Manager) want(r *request, key pod.Probe) {
	s := r.subject
	var spec *v1.Probe
	c := r.container(key.Container)
	if c != nil {
		spec = specOf(c, key.Kind)
	}
	if spec == nil {
		m.opts.Log.Info("A probe is wanted that the pod doesn't have; it isn't run", "pod", klog.KObj(r.pod),
			"containerName", key.Container, "probeType", key.Kind)
		return
	}
	e := s.find(key, r.before)
	if e == nil {
		e = m.newEntry(r, key, spec)
		e.since = s.round
		if s.byKey != nil {
			s.byKey[key] = e
		}
	} else if e.last == s.round {
		return // named twice
	}
	e.container, e.spec, e.last = c, spec, s.round
	s.entries = append(s.entries, e)
}

// container returns the container of this name that may have probes, or nil.
func (r *request) container(name string) *v1.Container {
	if r.subject.byKey == nil {
		return pod.ContainerNamed(r.pod, name)
	}
	if r.containers == nil {
		r.containers = map[string]*v1.Container{}
		for _, list := range [...][]v1.Container{r.pod.Spec.InitContainers, r.pod.Spec.Containers} {
			for i := range list {
				r.containers[list[i].Name] = &list[i]
			}
		}
	}
	return r.containers[name]
}

// started returns when the container instance was started; zero if unknown.
func (r *request) started(id string) time.Time {
	if r.observed == nil {
		return time.Time{}
	}
	if r.subject.byKey == nil {
		if c := r.observed.Instance(id); c != nil {
			return c.StartedAt.Round(0)
		}
		return time.Time{}
	}
	if r.starts == nil {
		r.starts = make(map[string]time.Time, len(r.observed.Containers))
		for i := range r.observed.Containers {
			c := &r.observed.Containers[i]
			r.starts[c.ID] = c.StartedAt.Round(0)
		}
	}
	return r.starts[id]
}

// newEntry returns a new entry with a deadline.
func (m *Manager) newEntry(r *request, key pod.Probe, spec *v1.Probe) *entry {
	s := r.subject
	startup := s.find(pod.Probe{Container: key.Container, ID: key.ID, Kind: pod.ProbeStartup}, r.before)
	due := m.first(spec, r.started(key.ID), startup != nil && startup.since != s.round)
	if e := m.late[lateKey{s.uid, key}]; e != nil {
		// A try from before it was dropped is still under way, though cancelled. There must not
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
	delay := pod.Seconds(spec.InitialDelaySeconds)
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

// drop ends a probe that is no longer wanted.
func (m *Manager) drop(e *entry) {
	e.wanted = false
	if e.result != nil {
		e.owner.stale = true
	}
	switch e.phase {
	case waiting:
		m.due.remove(e.place)
	case queued:
		e.queue.remove(e)
	case running:
		m.late[lateKey{e.owner.uid, e.key}] = e
		e.cancel()
	case assigned, held:
		// A worker that comes to it skips it.
	}
}
