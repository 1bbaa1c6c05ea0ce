package manifeststore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
)

// Topics of the journal's notes about problems, for Keeper.Note.
const (
	noteRestore = "restore"
	noteSave    = "save"
)

// Journal stores a Keeper's state on disk. It belongs to the keeper's goroutine.
type Journal struct {
	keeper   *Keeper
	store    *Store
	saver    *Saver
	origin   string
	restored bool
	known    bool
}

// NewJournal returns the journal of a keeper. Problems of the journal are reported with this origin.
func NewJournal(k *Keeper, store *Store, origin string) *Journal {
	return &Journal{keeper: k, store: store, saver: NewSaver(store), origin: origin}
}

// Restore gives the keeper the last good pods from before the agent's start, for the origins for which mine returns
// true. It reads the disk only the first time. known reports whether these pods were the source's complete state.
func (j *Journal) Restore(mine func(origin string) bool, now time.Time) (known bool) {
	if j.restored {
		return j.known
	}
	j.restored = true
	all, found, err := j.store.Load()
	var records []Record
	for _, r := range all {
		if mine(r.Origin) {
			records = append(records, r)
		}
	}
	j.known = found && (len(records) > 0 || len(all) == 0)
	ran, ranErr := j.store.Ran()
	failed := append([]error{err, ranErr}, j.keeper.Restore(records, ran)...)
	if err := errors.Join(failed...); err != nil {
		j.keeper.Note(noteRestore, j.origin, err.Error(), now)
	}
	return j.known
}

// Recall returns the stored state of a source, for an agent that only stops the source's pods.
func Recall(r *reader.Reader, store *Store) desired.Report {
	k := New(r)
	NewJournal(k, store, string(r.Source())).Restore(func(string) bool { return true }, time.Now())
	return k.Report()
}

// Start starts writing in the background. stop writes pending records and waits until they are written; then Start may
// be called again.
func (j *Journal) Start(ctx context.Context) (stop func()) {
	// Pending records are written after ctx is done.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var saver sync.WaitGroup
	saver.Go(func() { j.saver.Run(ctx) })
	return func() {
		cancel()
		saver.Wait()
	}
}

// Save schedules a write of the keeper's state. It doesn't block.
func (j *Journal) Save() { j.saver.Put(j.keeper.Records()) }

// Outcome returns a channel that receives when writes begin to fail, or to succeed again. After each receive, call
// Saved.
func (j *Journal) Outcome() <-chan struct{} { return j.saver.Outcome() }

// Saved updates the note about failed writes, and reports whether it changed.
func (j *Journal) Saved(now time.Time) bool {
	why := ""
	if err := j.saver.Err(); err != nil {
		why = err.Error() + "; pods run on, but a restart of the agent keeps only those whose manifest is good then"
	}
	return j.keeper.Note(noteSave, j.origin, why, now)
}
