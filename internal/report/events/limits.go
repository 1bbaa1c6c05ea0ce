package events

import (
	"hash/maphash"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The limits are those that client-go documents for its EventCorrelator, as are
// the things that they apply to.
const (
	// maxRemembered is of how many objects, and of how many kinds of events about
	// them, what is below is remembered; those not heard of for longest are forgotten.
	maxRemembered = 4096
	// maxAlike is how many messages of events that differ in nothing else have an
	// entry each. More are combined, until there was none for alikeInterval.
	maxAlike      = 10
	alikeInterval = 10 * time.Minute
	// burst is how many events of one type a component may record of an object at once;
	// it gets another one every refill.
	burst  = 25
	refill = 5 * time.Minute
)

// similar is what is remembered of events that differ in their message only.
type similar struct {
	// messages are hashes of those that have an entry each.
	messages []uint64
	last     time.Time
}

// budget is how many events of an object may still be recorded.
type budget struct {
	// full is when nothing of it will be missing any more: each event puts that off
	// by one refill.
	full time.Time
}

// tooManyAlike reports whether the event has to share an entry with others.
func (r *Recorder) tooManyAlike(alike, message uint64, now time.Time) bool {
	s := r.similar.get(alike)
	if s == nil {
		s, _ = r.similar.add(alike, similar{})
	}
	if now.Sub(s.last) > alikeInterval {
		s.messages = s.messages[:0]
	}
	s.last = now
	switch {
	case slices.Contains(s.messages, message):
		return false
	case len(s.messages) == maxAlike:
		return true
	}
	s.messages = append(s.messages, message)
	return false
}

// spend takes one event from the budget of this source, if there is one left.
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

// The keys are hashed: what is remembered then keeps no object's or message's text,
// and with a seed of its own nobody can bring about that two are taken for one.

// alikeKey is the same for events that differ in their message only.
func (r *Recorder) alikeKey(e Entry) uint64 {
	return maphash.Comparable(r.seed, struct {
		object          v1.ObjectReference
		kind, component string
		reason          pod.Reason
	}{e.Object, e.Type, e.Component, e.Reason})
}

// sourceKey is the same for events of one type that one component records of one
// object, whichever part of it.
func (r *Recorder) sourceKey(e Entry) uint64 {
	e.Object.FieldPath = ""
	return maphash.Comparable(r.seed, struct {
		object          v1.ObjectReference
		kind, component string
	}{e.Object, e.Type, e.Component})
}

// entryKey is the same for events that share an entry.
func (r *Recorder) entryKey(alike, message uint64, combined bool) uint64 {
	if combined {
		message = 0 // whatever it is
	}
	return maphash.Comparable(r.seed, struct {
		alike, message uint64
		combined       bool
	}{alike, message, combined})
}
