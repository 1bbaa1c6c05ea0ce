package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// soon is how long news wait to be written, for what else there is to come, and
	// every how long it is at least from one writing to the next.
	soon  = time.Second
	every = 30 * time.Second
	// saveTime is how long writing everything may take.
	saveTime = 2 * time.Second
	// keepFailed is how long that is kept on disk which the core failed on.
	keepFailed = 30 * 24 * time.Hour
)

// Start opens the folder and finds out whether the last agent stopped in order.
// What can't be done is logged and stops nobody: it returns nil.
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
		j.cfg.Log.Error(err, "The journal's folder can't be used: what is decided is kept in memory alone", "folder", j.cfg.Dir)
		return nil
	}
	j.mu.Lock()
	j.ready, j.crashed = true, was
	j.mu.Unlock()
	if was {
		j.cfg.Log.Info("The last agent didn't stop in order: what it left of its journal is shown by `deckhand journal --previous`; from now on the journal is kept on disk as well", "folder", j.cfg.Dir)
	}
	return nil
}

// usable reports whether there is a folder to write to.
func (j *Journal) usable() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ready
}

// Run keeps what has news on disk if the last agent didn't stop in order. When ctx
// ends it saves everything, and marks the agent as one that stops in order. Its
// owner therefore ends it after everybody who decides.
func (j *Journal) Run(ctx context.Context) error {
	j.follow(ctx)
	if !j.usable() {
		return nil
	}
	if err := j.Save(); err != nil {
		j.cfg.Log.Error(err, "Can't write the journal")
	}
	if err := j.store.unmark(); err != nil {
		j.cfg.Log.Error(err, "Can't mark that the agent stops in order: the next one will think that it crashed")
	}
	return nil
}

// follow writes news, some time after they come, until ctx ends.
func (j *Journal) follow(ctx context.Context) {
	var written time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.news:
		}
		wait := time.NewTimer(max(soon, every-time.Since(written)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		written = time.Now()
		select {
		case <-j.news: // it is written now, too
		default:
		}
		if err := j.Save(); err != nil {
			j.cfg.Log.Error(err, "Can't write the journal")
		}
	}
}

// Save writes everything that isn't on disk. It takes no longer than about two
// seconds: what isn't written by then is left out, which is an error.
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
	for range min(runtime.GOMAXPROCS(0), len(list)) {
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
