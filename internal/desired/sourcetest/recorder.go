// Package sourcetest has a test suite that every source of pods has to pass, and helpers for tests of sources.
package sourcetest

import (
	"sync"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Patience is the timeout of Wait. Only a failing test uses it up.
const Patience = 20 * time.Second

// Recorder is a sink that stores reports. It is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	reports []desired.Report
	changed wake.Slot
}

// NewRecorder returns a recorder without reports.
func NewRecorder() *Recorder { return &Recorder{changed: wake.NewSlot()} }

// Report stores a report.
func (r *Recorder) Report(report desired.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, report)
	r.changed.Wake()
}

// All returns all reports so far, the oldest first.
func (r *Recorder) All() []desired.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]desired.Report(nil), r.reports...)
}

// Last returns the newest report; false if there was none.
func (r *Recorder) Last() (desired.Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reports) == 0 {
		return desired.Report{}, false
	}
	return r.reports[len(r.reports)-1], true
}

// Clear forgets all reports.
func (r *Recorder) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = nil
}

// Wait returns the newest report once wanted returns true for it, and fails the test if that doesn't happen. One
// goroutine may wait at a time.
func (r *Recorder) Wait(t testing.TB, what string, wanted func(desired.Report) bool) desired.Report {
	t.Helper()
	late := time.After(Patience)
	for {
		last, any := r.Last()
		if any && wanted(last) {
			return last
		}
		select {
		case <-r.changed:
		case <-late:
			t.Fatalf("waited in vain for %s; the last report is %s", what, Describe(last))
		}
	}
}
