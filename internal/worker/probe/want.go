package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Want replaces the set of probes that run for a pod. p and o are immutable snapshots; podIP is the address for http,
// tcp and grpc probes. A probe of the same container instance that was requested before continues, with the new p and
// podIP. A probe that isn't requested any more is cancelled, and its result is dropped.
//
// A new probe is first tried initialDelaySeconds after its container's start. If the container ran before the manager
// was created, the first try is delayed by a random part of the period, so that after a restart of the agent not all
// probes of the node run at once. Probes that follow a startup probe aren't delayed in this way: they have already
// waited for its success.
//
// A startup probe isn't tried again after its result, nor a liveness probe after its failure, as long as it stays
// requested.
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

// request holds the data of one call of Want.
type request struct {
	pod      *v1.Pod
	observed *pod.Observed
	subject  *subject
	// before has the pod's entries of the previous round.
	before []*entry
	// containers and starts are indexes, used if a search for each probe would take long.
	containers map[string]*v1.Container
	starts     map[string]time.Time
}

// want adds one of the requested probes.
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
		return // the probe is listed twice
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

// newEntry returns a new entry with the time of its first try.
func (m *Manager) newEntry(r *request, key pod.Probe, spec *v1.Probe) *entry {
	s := r.subject
	startup := s.find(pod.Probe{Container: key.Container, ID: key.ID, Kind: pod.ProbeStartup}, r.before)
	due := m.first(spec, r.started(key.ID), startup != nil && startup.since != s.round)
	if e := m.late[lateKey{s.uid, key}]; e != nil {
		// A cancelled try from before the probe was dropped is still under way. There must not be a second one at the
		// same time, and its outcome doesn't count.
		delete(m.late, lateKey{s.uid, key})
		*e = entry{key: key, owner: s, wanted: true, phase: running, due: due, cancel: e.cancel}
		return e
	}
	e := &entry{key: key, owner: s, wanted: true}
	m.await(e, due)
	return e
}

// first returns the time of a new probe's first try.
func (m *Manager) first(spec *v1.Probe, started time.Time, afterStartup bool) time.Duration {
	wall := time.Now()
	now := wall.Sub(m.born)
	delay := pod.Seconds(spec.InitialDelaySeconds)
	left, adopted := delay, false
	if !started.IsZero() {
		// The runtime's times are wall clock times. If the clock was set back while no agent ran, a start in the future
		// must not delay the probe by more than its initial delay.
		started = pod.OnClock(started, wall, m.opts.ClockSteps())
		left = min(delay, delay-wall.Round(0).Sub(started))
		adopted = started.Before(wall.Round(0).Add(-now))
	}
	due := now
	if left > 0 {
		due += left + slack // the slack makes the try not begin before its initial delay is over
	}
	if adopted && !afterStartup {
		due = max(due, now+m.opts.Spread(period(spec)))
	}
	return due
}

// drop ends a probe that isn't requested any more.
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
		// If the entry is assigned, its worker skips it.
	}
}
