package manifeststore

import (
	"context"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// saveEvery is the minimum time between two writes: after a burst of changes, only the newest state is written.
const saveEvery = 250 * time.Millisecond

// Saver writes a source's records in the background, so that a slow or failing disk delays no pod.
//
// Not waiting for the disk is safe: a good manifest is itself the durable record. The previous version of a pod comes
// back only if a manifest becomes bad and the agent dies, both within the quarter second before the write.
type Saver struct {
	store   *Store
	wake    wake.Slot
	outcome wake.Slot

	mu      sync.Mutex
	pending func() []Record
	err     error
}

// NewSaver returns a saver that owns the store while it runs.
func NewSaver(store *Store) *Saver {
	return &Saver{store: store, wake: wake.NewSlot(), outcome: wake.NewSlot()}
}

// Put schedules a write of the records, which replace those of an earlier Put. It doesn't block. The function is
// called later, in Run's goroutine.
func (s *Saver) Put(records func() []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = records
	s.wake.Wake()
}

// Err is why the newest records couldn't be written, or nil.
func (s *Saver) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Outcome returns a channel with one slot, which receives when Err may have changed.
func (s *Saver) Outcome() <-chan struct{} { return s.outcome }

// Run writes records until ctx is done, then writes pending records and returns. It may be run again afterwards, but
// not concurrently.
func (s *Saver) Run(ctx context.Context) {
	freed, stop := s.store.DiskFreed.Subscribe()
	defer stop()
	var retry wake.Retry
	for {
		select {
		case <-ctx.Done():
			s.save()
			return
		case <-s.wake:
		}
		pause, early := saveEvery, freed
		if s.save() {
			retry.Succeeded()
			early = nil
		} else {
			pause = retry.Failed()
			s.wake.Wake()
		}
		select {
		case <-ctx.Done():
		case <-early:
		case <-time.After(pause):
		}
	}
}

// save writes the pending records, and reports whether that succeeded.
func (s *Saver) save() bool {
	s.mu.Lock()
	records := s.pending
	s.pending = nil
	s.mu.Unlock()
	if records == nil {
		return true
	}
	err := s.store.Save(records())

	s.mu.Lock()
	defer s.mu.Unlock()
	// If several writes fail in a row, only the first error is reported: later errors differ only in the names of
	// temporary files.
	if (err == nil) != (s.err == nil) {
		s.err = err
		s.outcome.Wake()
	}
	if err != nil && s.pending == nil {
		s.pending = records
	}
	return err == nil
}
