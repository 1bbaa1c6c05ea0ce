package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// soon is how long a change waits to be written, for others to join it, and
	// every the least time from one writing to the next.
	soon  = time.Second
	every = 30 * time.Second
	// saveTime is how long writing everything may take. 2,000 pods take 0.2 s to 1.5 s
	// where nothing else goes on.
	saveTime = 10 * time.Second
	// writers is how many files are written at a time: the kernel makes the files of a
	// directory one by one, and there is little else to do in parallel.
	writers = 4
	// failedWait is how long a pod's worker waits at most until it is its turn to write
	// what the core failed on.
	failedWait = time.Second
	// keepFailed is how long what the core failed on is kept on disk.
	keepFailed = 30 * 24 * time.Hour
)

// Start opens the directory and finds out whether the last agent shut down cleanly.
// It logs failures and returns nil: the agent runs without a journal on disk, too.
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
		j.cfg.Log.Info("The last agent didn't shut down cleanly: what it left of its journal is shown by `deckhand "+
			"journal --previous`; from now on the journal is kept on disk as well", "path", j.cfg.Dir)
	}
	return nil
}

// usable reports whether there is a directory to write to.
func (j *Journal) usable() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ready
}

// Run removes the files of pods that are closed, and writes changes to disk if the
// last agent didn't shut down cleanly. When ctx ends it saves everything, and marks the agent as shut down cleanly.
// It therefore has to end after all workers.
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

// follow writes changes, some time after they come, and removes closed records, until
// ctx ends.
func (j *Journal) follow(ctx context.Context) {
	var written time.Time
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
			case <-j.changed: // it is written now, too
			default:
			}
			if err := j.Save(); err != nil {
				j.cfg.Log.Error(err, "Can't write the journal")
			}
		}
	}
}

// Save writes everything that isn't on disk. It takes no longer than saveTime: what
// isn't written by then is left out, which is an error, and so is what had to be
// removed again because all of it is too much.
func (j *Journal) Save() error {
	if !j.usable() {
		return nil
	}
	list := j.all()
	until := time.Now().Add(saveTime)
	var next, missed atomic.Int64
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	for range min(writers, len(list)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)); i = next.Add(1) - 1 {
				err := errors.New("there was no time left")
				if time.Now().Before(until) {
					err = list[i].save()
				}
				if err != nil {
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
	if first != nil {
		return fmt.Errorf("the journal of %d of %d pods is not on disk: %w", missed.Load(), len(list), first)
	}
	if lost := j.store.missing(); lost > 0 {
		return fmt.Errorf("the journal of %d of %d pods is not on disk: all together are too large", lost, len(list))
	}
	return nil
}

// SaveOne writes what isn't on disk of one pod.
func (j *Journal) SaveOne(uid types.UID) error {
	r := j.record(uid)
	if r == nil || !j.usable() {
		return nil
	}
	return r.save()
}

// Sweep removes what earlier agents left of pods that keep doesn't want and that
// have no record now, and what the core failed on long ago.
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
