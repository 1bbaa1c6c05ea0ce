package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

const (
	// soon is the delay between a change and its save, so that further changes are saved together with it; every is the
	// minimum time between two saves.
	soon  = time.Second
	every = 30 * time.Second
	// saveTime limits the time for saving everything. 2,000 pods take 0.2 s to 1.5 s on an idle host.
	saveTime = 10 * time.Second
	// writers is the number of files written in parallel: the kernel creates the files of one directory one by one,
	// so that more would gain little.
	writers = 4
	// failedWait limits how long a pod's worker waits for its turn to write input on which the core failed.
	failedWait = time.Second
	// keepFailed is how long input on which the core failed is kept on disk.
	keepFailed = 30 * 24 * time.Hour
)

// Start opens the directory and determines whether the previous agent shut down cleanly. It logs failures and returns
// nil: the agent also runs without a journal on disk.
func (j *Journal) Start(context.Context) error {
	if j.off() {
		return nil
	}
	err := j.store.open()
	was := false
	if err == nil {
		was, err = j.store.mark()
	}
	if err != nil {
		j.cfg.Log.Error(err, "The journal's directory can't be used: decisions are recorded in memory alone",
			"path", j.cfg.Dir)
		return nil
	}
	j.mu.Lock()
	j.ready, j.crashed = true, was
	j.mu.Unlock()
	if was {
		j.cfg.Log.Info("The last agent didn't shut down cleanly: `deckhand journal --previous` shows the rest of its "+
			"journal; from now on the journal is written to disk as well", "path", j.cfg.Dir)
	}
	return nil
}

// usable reports whether there is a directory to write to.
func (j *Journal) usable() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ready
}

// Run removes the files of closed pods, and saves changes if the previous agent didn't shut down cleanly. When ctx is
// done it saves everything and marks the agent as shut down cleanly. It therefore has to end after all workers.
func (j *Journal) Run(ctx context.Context) error {
	j.follow(ctx)
	if !j.usable() {
		return nil
	}
	j.removeClosed()
	if err := j.Save(); err != nil {
		j.cfg.Log.Error(err, "Can't write the journal")
	}
	if err := j.store.unmark(); err != nil {
		j.cfg.Log.Error(err, "Can't mark that the agent shuts down cleanly: the next one will think that it crashed")
	}
	return nil
}

// follow saves changes with a delay and removes closed records, until ctx is done.
func (j *Journal) follow(ctx context.Context) {
	var written time.Time
	failing := false // logging.LastError doesn't fit: each error names another pod
	var due <-chan time.Time
	changed := j.changed // nil while due is pending
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.closing:
			j.removeClosed()
		case <-changed:
			changed, due = nil, time.After(max(soon, every-time.Since(written)))
		case <-due:
			changed, due = j.changed, nil
			written = time.Now()
			select {
			case <-j.changed: // this save includes that change
			default:
			}
			err := j.Save()
			if err != nil {
				if !failing {
					j.cfg.Log.Error(err, "Can't write the journal")
				}
				j.changed.Wake() // retries the save even without another change
			}
			failing = err != nil
		}
	}
}

// Save writes all unsaved records. After saveTime it leaves out the rest and returns an error. It also returns an error
// if files were removed because the total size of all files was too large.
func (j *Journal) Save() error {
	if !j.usable() {
		return nil
	}
	list := j.all()
	until := time.Now().Add(saveTime)
	var next, missed atomic.Int64
	var full atomic.Bool // after the first write that the disk refuses, the others aren't tried
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	for range min(writers, len(list)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)); i = next.Add(1) - 1 {
				if list[i].pending() == 0 {
					continue
				}
				err := errors.New("there was no time left")
				switch {
				case full.Load():
					missed.Add(1)
					continue
				case time.Now().Before(until):
					err = list[i].save()
				}
				if err != nil {
					if atomicfile.DiskFails(err) {
						full.Store(true)
					}
					missed.Add(1)
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	j.mu.Lock()
	j.failure = first
	j.mu.Unlock()
	if first != nil {
		return fmt.Errorf("the journal of %d of %d pods is not on disk: %w", missed.Load(), len(list), first)
	}
	if lost := j.store.missing(); lost > 0 {
		return fmt.Errorf("the journal of %d of %d pods is not on disk: all together are too large", lost, len(list))
	}
	return nil
}

// Sweep removes old input on which the core failed. It also removes earlier agents' files of pods that have no record
// now and for which keep returns false.
func (j *Journal) Sweep(keep func(types.UID) bool) {
	if !j.usable() {
		return
	}
	old := time.Now().Add(-keepFailed)
	err := j.store.sweep(func(f file, e entry) bool {
		if f.part == failed {
			return e.written.Before(old)
		}
		return j.record(f.uid) == nil && !keep(f.uid)
	})
	if err != nil {
		j.cfg.Log.Error(err, "Can't remove the journal of pods that are gone")
	}
}
