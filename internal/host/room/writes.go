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
	// changed is signaled when a write has taken patience, and when one ends while some hang.
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
	w.pending[p] = struct{}{}
	late := time.AfterFunc(patience, w.changed.Wake)
	return func() {
		late.Stop()
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
	for p := range w.pending {
		if time.Since(p.began) >= patience && (path == "" || p.began.Before(since)) {
			path, since = p.path, p.began
		}
	}
	return path, since
}

// Run reports writes that hang until ctx ends: once until none hangs. The error is always nil.
func (w *Writes) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			w.report()
		}
	}
}

// report reports that a write hangs, and that none does any more.
func (w *Writes) report() {
	path, since := w.Hanging()
	w.mu.Lock()
	hung := w.hanging
	w.hanging = path != ""
	w.mu.Unlock() // the log may be on the same disk
	switch {
	case path != "" && !hung:
		w.events.NodeEvent("Warning", pod.ReasonStorageFailed, fmt.Sprintf("The disk doesn't answer: a write of %s "+
			"hasn't returned since %s. Running pods run on; pods whose state has to be on disk wait",
			path, since.UTC().Format(time.RFC3339)))
		w.log.Info("The disk doesn't answer: a write hasn't returned. Running pods run on", "path", path)
	case path == "" && hung:
		w.log.Info("The disk answers again")
	}
}
