package events

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The limits are those of client-go's EventCorrelator, and so are the groups of events to which they apply.
const (
	// maxRemembered is the number of groups of similar events, and of rate limits, that are remembered; the least
	// recently used are dropped.
	maxRemembered = 4096
	// maxAlike is the number of different contents of otherwise equal events that get their own entries. Events with
	// further contents are combined into one entry, until no such event has occurred for alikeInterval.
	maxAlike      = 10
	alikeInterval = 10 * time.Minute
	// burst is the number of events of one type that a component may record about an object at once; after that, it may
	// record one more event every refill.
	burst  = 25
	refill = 5 * time.Minute
)

// similar is a group of events that differ in their content (message and annotations) only.
type similar struct {
	// contents has the contentKey of each content that has an entry of its own.
	contents []uint64
	last     time.Time
}

// budget is the rate limit of one source: a token bucket.
type budget struct {
	// full is the time at which the bucket is full again; each event postpones that by one refill.
	full time.Time
}

// tooManyAlike reports whether the event has to be combined with others of its group.
func (r *Recorder) tooManyAlike(alike, content uint64, now time.Time) bool {
	s := r.similar.get(alike)
	if s == nil {
		s, _ = r.similar.add(alike, similar{})
	}
	if now.Sub(s.last) > alikeInterval {
		s.contents = s.contents[:0]
	}
	s.last = now
	switch {
	case slices.Contains(s.contents, content):
		return false
	case len(s.contents) == maxAlike:
		return true
	}
	s.contents = append(s.contents, content)
	return false
}

// spend takes one event from the budget of this source. It reports false if none is left.
func (r *Recorder) spend(source uint64, now time.Time) bool {
	b := r.budgets.get(source)
	if b == nil {
		b, _ = r.budgets.add(source, budget{})
	}
	if b.full.Before(now) {
		b.full = now
	}
	if b.full.Sub(now) > (burst-1)*refill {
		return false
	}
	b.full = b.full.Add(refill)
	return true
}

// The keys are hashes, so that the recorder doesn't keep the texts. A random seed prevents clients from provoking
// collisions.

// alikeKey is equal for events that differ in their content only.
func (r *Recorder) alikeKey(e Entry) uint64 {
	return maphash.Comparable(r.seed, struct {
		object          v1.ObjectReference
		kind, component string
		reason          pod.Reason
	}{e.Object, e.Type, e.Component, e.Reason})
}

// sourceKey is equal for events of one type that one component records about one object or its parts.
func (r *Recorder) sourceKey(e Entry) uint64 {
	e.Object.FieldPath = ""
	return maphash.Comparable(r.seed, struct {
		object          v1.ObjectReference
		kind, component string
	}{e.Object, e.Type, e.Component})
}

// contentKey is equal for events with the same message and annotations.
func (r *Recorder) contentKey(e Entry) uint64 {
	content := maphash.String(r.seed, e.Message)
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		content = maphash.Comparable(r.seed, struct {
			before     uint64
			key, value string
		}{content, key, e.Annotations[key]})
	}
	return content
}

// entryKey is equal for events that share an entry.
func (r *Recorder) entryKey(alike, content uint64, combined bool) uint64 {
	if combined {
		content = 0 // combined events share an entry for all contents
	}
	return maphash.Comparable(r.seed, struct {
		alike, content uint64
		combined       bool
	}{alike, content, combined})
}
