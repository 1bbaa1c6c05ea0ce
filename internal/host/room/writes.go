package room

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// patience is how long a write may take before its disk counts as one that doesn't answer.
const patience = 5 * time.Second

// Writes follows writes that wait for a disk, and reports those that don't return: such a disk fails without an error.
// It is safe for concurrent use; a nil Writes follows none.
type Writes struct {
	events NodeEvents
	log    logr.Logger
	// changed is signaled when a write has begun while there was no other, and when the last one that hung has ended.
	changed wake.Slot

	mu sync.Mutex
	// pending are the writes that haven't returned.
	pending map[*pendingWrite]struct{}
	// hanging says that a write was reported that hasn't returned.
	hanging bool
}

// NodeEvents records events of the node.
type NodeEvents interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

type pendingWrite struct {
	path  string
	began time.Time
}

// NewWrites returns a Writes, which reports nothing before Run.
func NewWrites(events NodeEvents, log logr.Logger) *Writes {
	return &Writes{events: events, log: log, changed: wake.NewSlot(), pending: map[*pendingWrite]struct{}{}}
}

// Track has to be called before the file at path is written and made durable, and end afterwards.
func (w *Writes) Track(path string) (end func()) {
	if w == nil {
		return func() {}
	}
	p := &pendingWrite{path, time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending[p] = struct{}{}; len(w.pending) == 1 {
		w.changed.Wake()
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.pending, p); w.hanging {
			w.changed.Wake()
		}
	}
}

// Hanging returns the path and the begin of the write that has hung for longest; an empty path if none hangs.
func (w *Writes) Hanging() (path string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.oldest(); p != nil && time.Since(p.began) >= patience {
		return p.path, p.began
	}
	return "", time.Time{}
}

// oldest returns the first of the pending writes; nil if there is none. The caller holds mu.
func (w *Writes) oldest() (first *pendingWrite) {
	for p := range w.pending {
		if first == nil || p.began.Before(first.began) {
			first = p
		}
	}
	return first
}

// Run reports writes that hang until ctx ends: once until none hangs. The error is always nil.
func (w *Writes) Run(ctx context.Context) error {
	for {
		var due <-chan time.Time
		if after := w.report(); after > 0 {
			due = time.After(after)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		case <-due:
		}
	}
}

// report reports a write that hangs, and that none does any more. It returns the time until the next pending write
// hangs; zero if there is none, or one hangs already.
func (w *Writes) report() (after time.Duration) {
	w.mu.Lock()
	p := w.oldest()
	if p != nil {
		after = patience - time.Since(p.began)
	}
	hangs, hung := p != nil && after <= 0, w.hanging
	w.hanging = hangs
	w.mu.Unlock() // the log may be on the same disk
	switch {
	case hangs && !hung:
		w.events.NodeEvent("Warning", pod.ReasonStorageFailed, fmt.Sprintf("The disk doesn't answer: a write of %s "+
			"hasn't returned since %s. Running pods run on; those wait whose state has to be on disk",
			p.path, p.began.UTC().Format(time.RFC3339)))
		w.log.Info("The disk doesn't answer: a write hasn't returned. Running pods run on", "path", p.path)
	case !hangs && hung:
		w.log.Info("The disk answers again")
	}
	return max(after, 0)
}
