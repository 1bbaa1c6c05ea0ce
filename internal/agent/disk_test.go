package agent_test

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watchDisk has the agent pass a point for each change in the folders that it
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.Events {
			point := w.diskPoint(e)
			if point == "" {
				continue
			}
			if e.Has(fsnotify.Create) {
				// Most aren't folders, and some are gone by now.
				_ = watcher.Add(e.Name + "/.")
			}
			w.passes(w.pid(), point)
		}
	}()
	return func() {
		if err := watcher.Close(); err != nil {
			w.t.Error(err)
		}
		<-done
	}
}

var (
	uidInPath  = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}`)
	tempSuffix = regexp.MustCompile(`\.tmp-[0-9]+$`)
)

// diskPoint names a change, without what differs from run to run; empty if it is
// none of the agent's.
func (w *world) diskPoint(e fsnotify.Event) string {
	name, err := filepath.Rel(w.dir, filepath.Clean(e.Name))
	if err != nil {
		return ""
	}
	switch top, _, _ := strings.Cut(name, "/"); {
	case top != "root" && top != "logs" && top != "links", strings.HasPrefix(name, "root/deckhand."):
		return ""
	}
	name = tempSuffix.ReplaceAllString(uidInPath.ReplaceAllString(name, "UID"), ".tmp")
	switch {
	case e.Has(fsnotify.Create):
		return "disk made " + name
	case e.Has(fsnotify.Remove):
		return "disk removed " + name
	}
	return ""
}
