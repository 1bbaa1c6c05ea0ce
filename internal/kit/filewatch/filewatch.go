package filewatch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

const (
	// settle is how long files have to stay unchanged before a change is reported.
	settle = 250 * time.Millisecond
	// settleAtMost is the longest delay of a report while changes continue, unless a file is still being written.
	settleAtMost = 5 * time.Second
)

// Settled reports when files or directories may have changed, and the changes are over.
type Settled struct {
	instance *Instance
	paths    []string
	counts   func(name string) bool
	log      logr.Logger
	changed  wake.Slot
	settle   time.Duration
	// awaited is the last file that was logged as being written. Only Run uses it.
	awaited string
}

// NewSettled returns a Settled for these paths, which need not exist yet. For a directory, it watches the files in it
// and in the directories below; counts decides by a file's name whether the file is watched.
func (i *Instance) NewSettled(paths []string, counts func(name string) bool, log logr.Logger) *Settled {
	return &Settled{instance: i, paths: slices.Clone(paths), counts: counts, log: log, changed: wake.NewSlot(),
		settle: settle}
}

// Changed returns a channel that receives, without data, when something may have changed: once when Run begins to
// watch, because of earlier changes, and then each time that changes have settled. A reader that reads the files after
// each value misses no change.
//
// A file that is being written hasn't settled, however long writing takes: the beginning of a file may look like a
// complete file. Only on a file system that can't report writers (NFS, for example), a quarter of a second without
// changes is enough.
func (s *Settled) Changed() <-chan struct{} { return s.changed }

// Run watches until ctx ends; the error is nil then. Any other error says why it can't begin to watch.
func (s *Settled) Run(ctx context.Context) error {
	for i, path := range s.paths {
		var err error
		if s.paths[i], err = filepath.Abs(path); err != nil {
			return fmt.Errorf("can't watch %s for changes: %w", path, err)
		}
	}
	watcher := s.instance.Open(func(t Trail) {
		for _, path := range s.paths {
			t.Tree(path, s.counts)
		}
	})
	defer watcher.Close()
	// The instance reports an error.
	s.listen(ctx, watcher.Events(), func() { _ = watcher.Arm() }, watcher.unfinished)
	return nil
}

// listen reports changes that have settled. It calls arm to watch files and directories that were created meanwhile.
// unfinished returns a file that is being written, if there is one.
func (s *Settled) listen(ctx context.Context, events <-chan Event, arm func(), unfinished func() string) {
	burst := burst{settle: s.settle}
	arm()
	if unfinished() == "" {
		s.changed.Wake()
	} else {
		burst.add(time.Now())
	}
	for {
		var settled <-chan time.Time
		if due := burst.due(); !due.IsZero() {
			settled = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			s.log.V(4).Info("Watched files changed", "path", filepath.Join(event.Dir, event.Name),
				"event", event.Op.String())
			if event.Op == Rescan {
				arm()
			}
		case <-settled:
			// New files and directories are watched before the change is reported, so that a change after the caller
			// has read them is reported, too.
			arm()
			if file := unfinished(); file != "" {
				burst.postpone(time.Now())
				s.logAwaited(file)
				continue
			}
			burst.over()
			s.awaited = ""
			s.changed.Wake()
			continue
		}
		burst.add(time.Now())
	}
}

// logAwaited logs a file that is being written, unless it was the last one that was logged.
func (s *Settled) logAwaited(file string) {
	if file != s.awaited {
		s.awaited = file
		s.log.V(2).Info("A file is being written; it is read when its writer has closed it", "path", file)
	}
}
