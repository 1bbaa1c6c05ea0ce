// Package file is the source of pods with manifests in a directory or in one file.
//
// inotify reports changes; a periodic scan (fileCheckFrequency) is the safety net. A file that is being written is
// read only after its writer closes it. A file has to be missing twice, a moment apart, before its pods are removed,
// because editors move the file away when they save.
package file

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Config is the configuration of a Source.
type Config struct {
	// Path is the absolute path of a directory or file (staticPodPath). It needn't exist yet.
	Path string
	// Every is the interval of scans (fileCheckFrequency).
	Every time.Duration
	// DeletedAtOnce makes a deleted file count as deleted at once, even if it soon comes back. A file that is moved
	// away or overwritten still has a short time to come back.
	DeletedAtOnce bool
	// Files reports changes of the manifests.
	Files *filewatch.Instance
	// Invoker is the user who started the agent with sudo; that user's files are trusted like root's.
	Invoker rootdir.Invoker
}

// Source reads manifests from a directory or file.
type Source struct {
	path  string
	every time.Duration
	// deletedAtOnce is Config.DeletedAtOnce.
	deletedAtOnce bool
	keeper        *manifeststore.Keeper
	journal       *manifeststore.Journal
	sink          desired.Sink
	log           logr.Logger
	invoker       rootdir.Invoker
	// watch opens a watcher of a path.
	watch func(path string) watcher

	running sync.Mutex
	// files is the state of each origin, so that unchanged files aren't read again.
	files map[string]*seenFile

	exposing sync.Mutex
	// exposed has, by path, a message about users other than root who can change the file or directory.
	exposed map[string]string
}

// watcher reports changes at a path: see package filewatch.
type watcher interface {
	Arm() error
	Events() <-chan filewatch.Event
	Close()
}

// New returns a source that reads with r, reports to sink and keeps the last good pods in store. It does nothing
// until Run.
func New(config Config, r *reader.Reader, store *manifeststore.Store, sink desired.Sink, log logr.Logger) *Source {
	path, keeper := filepath.Clean(config.Path), manifeststore.New(r)
	return &Source{
		path:          path,
		every:         config.Every,
		deletedAtOnce: config.DeletedAtOnce,
		keeper:        keeper,
		journal:       manifeststore.NewJournal(keeper, store, path),
		sink:          sink,
		log:           log.WithValues("source", pod.SourceFile, "path", config.Path),
		watch: func(path string) watcher {
			return config.Files.Open(func(t filewatch.Trail) { t.Path(path) })
		},
		files:   map[string]*seenFile{},
		invoker: config.Invoker,
		exposed: map[string]string{},
	}
}

// Run reports pods until ctx is done; then it returns nil. Problems with manifests, the directory or the disk are
// reported, and don't end Run. It may be run again after it returned, and continues with its state.
func (s *Source) Run(ctx context.Context) error {
	if !s.running.TryLock() {
		return errors.New("the file source is running already")
	}
	defer s.running.Unlock()
	s.journal.Restore(s.mine, time.Now())
	defer s.journal.Start(ctx)()

	w := newWatch(s, time.Now())
	defer w.watcher.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if now := time.Now(); !now.Before(w.wake) {
			w.pass(now)
		}
		timer.Reset(time.Until(w.wake))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case event := <-w.watcher.Events():
			w.handle(event, time.Now())
		case <-s.journal.Outcome():
			w.noted(s.journal.Saved(time.Now()), time.Now())
		}
	}
}

// mine reports whether an origin is the configured path or a file in that directory. After a change of the
// configuration, the checkpoint may contain origins of another path.
func (s *Source) mine(origin string) bool {
	return origin == s.path || filepath.Dir(origin) == s.path
}

// notePath is the topic of the note about the path itself, for Keeper.Note.
const notePath = "path"
