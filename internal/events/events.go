// Package events keeps what happened to pods lately in a bounded ring, for a
// node that has no API server to send events to.
package events

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Entry is one event, or several alike that followed each other.
type Entry struct {
	First   time.Time
	Last    time.Time
	Count   int
	Type    string
	Reason  string
	Message string
	// Object is "namespace/name" of the pod, or the source's path or URL.
	Object string
	// Container is the container it is about, if any.
	Container string
}

// Ring keeps the newest entries. Its methods may be called concurrently.
type Ring struct {
	mu      sync.Mutex
	size    int
	entries []Entry
}

// NewRing returns a ring of at most size entries (size > 0).
func NewRing(size int) *Ring { return &Ring{size: size} }

// Event records something that happened to a pod.
func (r *Ring) Event(p *v1.Pod, e pod.Event) {
	r.Add(Entry{Type: e.Type, Reason: e.Reason, Message: e.Message, Object: p.Namespace + "/" + p.Name, Container: e.Container})
}

// Add records an entry that happens now. An entry like one already there only
// raises its count and moves to the end.
func (r *Ring) Add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.First, e.Last, e.Count = time.Now(), time.Now(), 1
	for i := range r.entries {
		if old := &r.entries[i]; old.Object == e.Object && old.Reason == e.Reason && old.Message == e.Message && old.Container == e.Container {
			e.First, e.Count = old.First, old.Count+1
			r.entries = append(r.entries[:i], r.entries[i+1:]...)
			break
		}
	}
	if len(r.entries) == r.size {
		r.entries = append(r.entries[:0], r.entries[1:]...)
	}
	r.entries = append(r.entries, e)
}

// List returns the entries, oldest first.
func (r *Ring) List() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Entry(nil), r.entries...)
}
