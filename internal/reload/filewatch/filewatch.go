// Package filewatch tells when files or folders of configuration may have changed, however
// that is done: written in place, replaced by a rename, removed and made again, or by
// a link anywhere on their path that leads elsewhere, as in mounted ConfigMaps.
package filewatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

const (
	// settle is for how long nothing must have changed before it is told.
	settle = 250 * time.Millisecond
	// settleAtMost is how long it takes until it is told where changes don't end, unless it
	// shows that a file is half written.
	settleAtMost = 5 * time.Second
)

// Watcher watches some paths, whether there is anything at them or not.
type Watcher struct {
	paths   []string
	counts  func(name string) bool
	log     logr.Logger
	changed chan struct{}
	settle  time.Duration
	// unfinished returns a file that is being written, if there is one.
	unfinished func(trail) string
	// trail is what is watched now, inodes what was there when that began, failed the last
	// error that was told of it, awaited the file whose writer was told of. Only Run uses them.
	trail           trail
	inodes          map[string]inode
	failed, awaited string
}

// New returns a watcher of these paths. At a folder, the files in it and in the folders
// below are watched; counts says by the name which of them are read.
func New(paths []string, counts func(name string) bool, log logr.Logger) *Watcher {
	return &Watcher{paths: slices.Clone(paths), counts: counts, log: log, changed: make(chan struct{}, 1), settle: settle, unfinished: trail.unfinished}
}

// Changed returns a channel that gets a value, without data, when something may have
// changed: once when watching begins, for what happened before, and then each time
// when changes have settled. Who reads the files after that misses nothing.
//
// What is being written hasn't settled, however long that takes: the beginning of a file may
// pass for a whole one. Only a file system that can't tell who writes (NFS, say) leaves
// it at a quarter of a second without changes.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Run watches until ctx ends; the error is nil then. Any other error says why nothing
// is told any more.
func (w *Watcher) Run(ctx context.Context) error {
	for i, path := range w.paths {
		if filepath.IsAbs(path) {
			continue
		}
		var err error
		if w.paths[i], err = filepath.Abs(path); err != nil {
			return fmt.Errorf("can't watch %s for changes: %w", path, err)
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("can't watch the configuration for changes: %w", advised(err))
	}
	defer watcher.Close()
	return w.listen(ctx, watcher.Events, watcher.Errors, func() { w.arm(watcher) })
}

// listen tells of changes that settled. arm has to be called to notice changes in what
// is at the paths by now.
func (w *Watcher) listen(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, arm func()) error {
	burst := burst{settle: w.settle}
	arm()
	if w.unfinished(w.trail) == "" {
		w.tell()
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
			return nil
		case event, ok := <-events:
			if !ok {
				return errors.New("can't watch the configuration for changes any more: the kernel's events have ended")
			}
			if !w.trail.concerns(event) {
				continue
			}
			w.log.V(4).Info("Something happened to the configuration", "event", event.String())
			if event.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 {
				arm()
			}
		case err, ok := <-failures:
			if !ok {
				failures = nil // the events end with them
				continue
			}
			w.log.V(2).Info("Events about the configuration were lost, so it counts as changed", "err", err.Error())
		case <-settled:
			// What came into being since the last event is watched before it is told, so
			// that whatever happens after it was read is told, too.
			arm()
			if file := w.unfinished(w.trail); file != "" {
				burst.hold(time.Now())
				w.tellAwaited(file)
				continue
			}
			burst.over()
			w.awaited = ""
			w.tell()
			continue
		}
		burst.add(time.Now())
	}
}

// tellAwaited tells once of each file that somebody is writing.
func (w *Watcher) tellAwaited(file string) {
	if file != w.awaited {
		w.awaited = file
		w.log.V(2).Info("A file of the configuration is being written; it is read when its writer has closed it", "file", file)
	}
}

func (w *Watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// arm has the kernel tell of all that leads to what is at the paths now.
func (w *Watcher) arm(watcher *fsnotify.Watcher) {
	var err error
	for range 3 {
		// What was there a moment ago may be gone already: then look again.
		if err = w.armOnce(watcher); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			break
		}
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if err != nil && text != w.failed {
		w.log.Error(err, "Not all changes of the configuration will be noticed; a SIGHUP has it read again")
	}
	w.failed = text
}

func (w *Watcher) armOnce(watcher *fsnotify.Watcher) error {
	next := trail{}
	for _, path := range w.paths {
		next.lead(path, w.counts)
	}
	for dir := range w.trail {
		if _, still := next[dir]; !still {
			_ = watcher.Remove(dir) // it may be gone already, and the watch with it
		}
	}
	inodes := make(map[string]inode, len(next))
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(next)) {
		inodes[dir] = inodeAt(dir)
		if was, watched := w.inodes[dir]; watched && was != inodes[dir] {
			// fsnotify forgets the watch of what was there before, and the kernel doesn't, as
			// long as that goes on under another name: as somebody's backup, say.
			_ = watcher.Remove(dir) // mostly it is gone already
		}
		// To add one again renews a watch that ended with a folder that was made anew.
		if err := watcher.Add(dir); err != nil {
			errs = append(errs, fmt.Errorf("can't watch %s: %w", dir, advised(err)))
		}
	}
	w.trail, w.inodes = next, inodes
	return errors.Join(errs...)
}

// inode tells files apart that follow each other under one name.
type inode struct{ device, number uint64 }

func inodeAt(path string) inode {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return inode{}
	}
	return inode{uint64(st.Dev), st.Ino}
}

// advised adds to an error what a person can do about used-up limits.
func advised(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_instances (or the limit of open files)", err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_watches", err)
	}
	return err
}
