package eventsink

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// rank orders entries when the queue is full: the lowest rank is dropped first.
type rank int

const (
	repeatedNormal rank = iota
	firstNormal
	warning
	// ending is the rank of an event about why and how a pod ended, which can't be found elsewhere later.
	ending
)

func rankOf(e *events.Entry) rank {
	switch {
	case e.Object.Kind == "Pod" && endsPod(e.Reason):
		return ending
	case e.Type == v1.EventTypeWarning:
		return warning
	case e.Count > 1:
		return repeatedNormal
	}
	return firstNormal
}

func endsPod(r pod.Reason) bool {
	switch r {
	case pod.ReasonKilling, pod.ReasonEvicted, pod.ReasonPreempting, pod.ReasonDeadlineExceeded, pod.ReasonTerminated:
		return true
	}
	return false
}

// item is an entry to send.
type item struct {
	events.Entry
	// tries is how many times sending the entry has failed; due is when the next try may be made.
	tries int
	due   time.Time
}

// queue holds entries whose newest state isn't at the API server yet, at most size. It is safe for concurrent use.
type queue struct {
	size  int
	woken wake.Slot

	mu    sync.Mutex
	items map[uint64]item
}

func newQueue(size int) *queue {
	return &queue{size: size, woken: wake.NewSlot(), items: make(map[uint64]item)}
}

// put adds an entry, or replaces an older state of it. It reports whether an entry, the new one or another, was
// dropped because the queue is full.
func (q *queue) put(i item) (lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if other, ok := q.items[i.ID]; ok {
		if other.Seq < i.Seq {
			i.tries, i.due = other.tries, other.due
			q.items[i.ID] = i
		}
		return false
	}
	if len(q.items) == q.size {
		lost = true
		least := i
		for _, o := range q.items {
			if a, b := rankOf(&o.Entry), rankOf(&least.Entry); a < b || a == b && o.Seq < least.Seq {
				least = o
			}
		}
		if least.ID == i.ID {
			return true
		}
		delete(q.items, least.ID)
	}
	q.items[i.ID] = i
	q.woken.Wake()
	return lost
}

// pop removes the oldest entry that is due. If there is none, next is when one will be due; zero for never.
func (q *queue) pop(now time.Time) (first item, ok bool, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.items {
		switch {
		case i.due.After(now):
			if next.IsZero() || i.due.Before(next) {
				next = i.due
			}
		case !ok || i.Seq < first.Seq:
			first, ok = i, true
		}
	}
	if ok {
		delete(q.items, first.ID)
	}
	return first, ok, next
}

// hurry makes all entries due.
func (q *queue) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, i := range q.items {
		i.due = time.Time{}
		q.items[id] = i
	}
}
