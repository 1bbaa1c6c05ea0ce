package probe

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// subject is one pod that has, or had, probes to run.
type subject struct {
	uid     types.UID
	pod     *v1.Pod
	ip      string
	entries []*entry
	// byKey has the entries; nil if they are few.
	byKey map[pod.Probe]*entry
	// round counts the calls of Want.
	round uint32
	// network and exec are its queues at the limiters; nil until it has had something due.
	network, exec *queue
	// results is replaced, never changed: callers of Results hold on to it. If stale, it
	// has to be before it is given away.
	results []pod.ProbeResult
	stale   bool
}

// current returns the results of the pod's entries.
func (s *subject) current() []pod.ProbeResult {
	if !s.stale {
		return s.results
	}
	s.results, s.stale = nil, false
	for _, e := range s.entries {
		if e.result != nil {
			s.results = append(s.results, *e.result)
		}
	}
	return s.results
}

// few is how many entries are looked through faster than a map is made. Nearly all pods
// have no more, and their memory counts.
const few = 16

// find returns the entry of this key, or nil; before are the entries of the round before.
func (s *subject) find(key pod.Probe, before []*entry) *entry {
	if s.byKey != nil {
		return s.byKey[key]
	}
	for _, list := range [...][]*entry{before, s.entries} {
		for _, e := range list {
			if e.key == key {
				return e
			}
		}
	}
	return nil
}

// index makes n entries of the pod fast to find.
func (s *subject) index(n int) {
	if n <= few {
		s.byKey = nil
		return
	}
	if s.byKey == nil {
		s.byKey = make(map[pod.Probe]*entry, n)
		for _, e := range s.entries {
			s.byKey[e.key] = e
		}
	}
}
