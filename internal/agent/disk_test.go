package agent_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watchDisk has the agent pass a point for each change in the directories that it
// writes. Unlike at the other points it goes on meanwhile: it may come some
// microseconds further before it is killed.
func (w *world) watchDisk() (stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range []string{".", "logs", "links"} {
		if err := watcher.Add(w.path(dir)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.watchAlso(watcher, w.path("root")) // on a disk of its own it is there already
	var loops sync.WaitGroup
	loops.Go(func() {
		for err := range watcher.Errors {
			w.logf("changes on disk may be missed: %v", err)
		}
	})
	loops.Go(func() {
		for e := range watcher.Events {
			if e.Has(fsnotify.Create) {
				w.watchAlso(watcher, e.Name)
			}
			w.passes(w.pid(), w.diskPoint(e.Name, e.Has(fsnotify.Create), e.Has(fsnotify.Remove)))
		}
	})
	return func() {
		if err := watcher.Close(); err != nil {
			w.t.Error(err)
		}
		loops.Wait()
	}
}

var (
	uidInPath  = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}`)
	tempSuffix = regexp.MustCompile(`\.tmp-[0-9]+$`)
)

// watchAlso watches a directory of the agent's that has just been made, and reports what
// was made in it meanwhile.
func (w *world) watchAlso(watcher *fsnotify.Watcher, dir string) {
	if w.diskPoint(dir, true, false) == "" || watcher.Add(dir+"/.") != nil {
		return // most aren't directories, and some are gone by now
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		w.passes(w.pid(), w.diskPoint(name, true, false))
		w.watchAlso(watcher, name)
	}
}

// diskPoint names a change, without what differs from run to run; empty if it is
// none of the agent's.
func (w *world) diskPoint(path string, made, removed bool) string {
	name, err := filepath.Rel(w.dir, filepath.Clean(path))
	if err != nil {
		return ""
	}
	switch top, _, _ := strings.Cut(name, "/"); {
	case top != "root" && top != "logs" && top != "links", strings.HasPrefix(name, "root/deckhand."),
		name == "root/"+fillerDir, strings.HasPrefix(name, "root/"+fillerDir+"/"): // the test's own
		return ""
	}
	name = tempSuffix.ReplaceAllString(uidInPath.ReplaceAllString(name, "UID"), ".tmp")
	switch {
	case made:
		return "disk made " + name
	case removed:
		return "disk removed " + name
	}
	return ""
}
