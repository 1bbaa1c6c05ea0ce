package probe

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// subject is a pod that has, or had, probes to run.
type subject struct {
	uid     types.UID
	pod     *v1.Pod
	ip      string
	entries []*entry
	// byKey indexes the entries; nil if they are few.
	byKey map[pod.Probe]*entry
	// round counts the calls of Want.
	round uint32
	// network and exec are the pod's queues at the limiters; nil until one of its entries has been due.
	network, exec *queue
	// results is replaced, never changed, because callers of Results keep it. If stale is set, it has to be rebuilt
	// before use.
	results []pod.ProbeResult
	stale   bool
}

// current returns the results of the pod's probes; it rebuilds results if they are stale.
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

// few is the number of entries up to which a linear search is faster than building a map. Nearly all pods have no
// more, and the memory of maps matters.
const few = 16

// find returns the pod's entry with this key, or nil; before are the entries of the previous round.
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

// index builds the index of the pod's entries if there are more than a few.
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
