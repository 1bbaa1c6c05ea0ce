package desired

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Merger builds a desired set from the reports of all sources. It has no goroutine: a report is merged by the
// goroutine that calls Report. It is safe for concurrent use.
type Merger struct {
	log     logr.Logger
	order   []pod.Source
	current atomic.Pointer[Set]

	mu          sync.Mutex
	reports     map[pod.Source]Report
	held        holds
	added       additions
	subscribers wake.Group
}

// New returns a merger of the reports of these sources. Their order decides which source gets a name that two of them
// claimed at the same time. Without sources, the empty set is synced from the start.
func New(log logr.Logger, sources ...pod.Source) *Merger {
	m := &Merger{
		log:     log,
		order:   slices.Clone(sources),
		reports: map[pod.Source]Report{},
	}
	m.current.Store(merge(m.order, m.reports, m.held, m.added, nil))
	return m
}

// Current returns the newest set. It is never nil.
func (m *Merger) Current() *Set { return m.current.Load() }

// Subscribe returns a channel that receives after each change of Current. Further changes before the receive are
// merged into one. The channel is never closed. stop ends the subscription; it may be called repeatedly.
func (m *Merger) Subscribe() (changed <-chan struct{}, stop func()) {
	return m.subscribers.Subscribe()
}

// Report replaces a source's state. A report of a source that wasn't passed to New is a programming error: it is
// logged and ignored.
func (m *Merger) Report(r Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.order, r.Source) {
		m.log.Error(nil, "A source that isn't configured reported pods; they are ignored", "source", r.Source)
		return
	}
	m.logEdits(r.Edits)
	r.Edits = nil
	m.reports[r.Source] = r
	m.publish()
}

// publish rebuilds the set, and wakes the subscribers if it has changed. mu is held.
func (m *Merger) publish() {
	old := m.current.Load()
	new := merge(m.order, m.reports, m.held, m.added, old)
	m.added = m.added.wanted(new)
	if same(old, new) {
		return
	}
	m.current.Store(new)
	m.logProblems(old, new)
	m.subscribers.Wake()
}

func (m *Merger) logEdits(edits []Edit) {
	for _, e := range edits {
		log := m.log.V(2).WithValues("pod", klog.KObj(e.New.Pod), "podUID", e.New.Pod.UID, "origin", e.New.Origin)
		if e.Why == "" {
			log.Info("The manifest of a pod was edited; that is applied in place", "generation", e.New.Pod.Generation)
			continue
		}
		log.Info("The manifest of a pod was edited; the pod is recreated", "reason", e.Why)
	}
}

// logProblems logs new and solved problems. Sources don't log problems: only the merger has the problems of all
// sources.
func (m *Merger) logProblems(old, new *Set) {
	for _, p := range without(new.Problems, old.Problems) {
		m.log.Info("Problem with a manifest", "source", p.Source, "origin", p.Origin, "pod", logging.Ref(p.Pod),
			"message", p.Message)
	}
	for _, p := range without(old.Problems, new.Problems) {
		m.log.V(2).Info("Problem with a manifest is solved", "source", p.Source, "origin", p.Origin,
			"pod", logging.Ref(p.Pod))
	}
	if new.Synced && !old.Synced {
		m.log.V(2).Info("All sources of pods have reported", "pods", len(new.Pods), "objects", len(new.Objects.List()))
	}
	m.logObjects(old.Objects, new.Objects)
}

// logObjects logs added, changed and removed objects.
func (m *Merger) logObjects(old, new *object.Set) {
	if old == new {
		return
	}
	log := m.log.V(2)
	for _, d := range new.List() {
		switch before := old.Get(d.Key()); {
		case before == nil:
			log.Info("Object added", "object", d.Key(), "origin", d.Origin)
		case before.Object() != d.Object():
			log.Info("Object changed", "object", d.Key(), "origin", d.Origin,
				"resourceVersion", d.Object().GetResourceVersion())
		}
	}
	for _, d := range old.List() {
		if new.Get(d.Key()) == nil {
			log.Info("Object removed", "object", d.Key(), "origin", d.Origin)
		}
	}
}

// without returns the problems of a that aren't in b.
func without(a, b []pod.Problem) []pod.Problem {
	known := make(map[pod.Problem]struct{}, len(b))
	for _, p := range b {
		known[p] = struct{}{}
	}
	var out []pod.Problem
	for _, p := range a {
		if _, ok := known[p]; !ok {
			out = append(out, p)
		}
	}
	return out
}

func same(a, b *Set) bool {
	return a.Synced == b.Synced && a.LocalSynced == b.LocalSynced && a.Listed == b.Listed &&
		a.AllStopped == b.AllStopped &&
		slices.Equal(a.Stopped, b.Stopped) && a.Objects.Equal(b.Objects) && slices.Equal(a.Pods, b.Pods) &&
		slices.Equal(a.Problems, b.Problems) && slices.Equal(a.Refused, b.Refused)
}
