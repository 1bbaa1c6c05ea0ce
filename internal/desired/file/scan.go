package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ignored reports whether a name in the directory is no manifest by its form: hidden,
// or one of those that editors use for a moment or for backups.
func ignored(name string) bool {
	return name == "" || name[0] == '.' ||
		strings.HasSuffix(name, "~") ||
		strings.HasSuffix(name, ".swp") ||
		name[0] == '#' && name[len(name)-1] == '#' ||
		name == "4913" // vim tries with it whether it may write here
}

// scan looks at everything, and makes sure it is watched.
func (w *watch) scan(now time.Time) {
	w.arm(now)
	origins, err := w.list()
	if errors.Is(err, fs.ErrNotExist) {
		w.absentPath(now)
		return
	}
	w.pathMissing = time.Time{}
	if err != nil {
		w.note(notePath, fmt.Sprintf("%v; its pods run on as they are", err), now)
		return
	}
	w.note(notePath, "", now)
	there := make(map[string]struct{}, len(origins))
	for _, origin := range origins {
		there[origin] = struct{}{}
		w.look(origin, now)
	}
	for _, origin := range w.keeper.Names() {
		if _, ok := there[origin]; !ok {
			w.absent(origin, w.file(origin), now)
		}
	}
}

// arm makes sure that the kernel reports changes, or notes why it doesn't.
func (w *watch) arm(now time.Time) {
	if w.watcher == nil {
		watcher, err := w.watch(w.path)
		if err != nil {
			w.note(noteWatch, w.unwatched(err), now)
			return
		}
		w.watcher, w.events = watcher, watcher.Events()
	}
	err := w.watcher.Arm()
	w.armed = err == nil
	why := ""
	if err != nil {
		why = w.unwatched(err)
	}
	w.note(noteWatch, why, now)
}

// list returns the origins that are at the path: the files of a directory, sorted,
// or the path itself. The error is fs.ErrNotExist only if there is nothing at all.
func (w *watch) list() ([]string, error) {
	w.single = true
	info, err := os.Stat(w.path)
	if err != nil {
		// A file that came after Stat is none: the event of its coming has it listed.
		link, linkErr := os.Lstat(w.path)
		if linkErr == nil && link.Mode()&fs.ModeSymlink != 0 && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is a symbolic link to something that doesn't exist", w.path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("manifests can't be read: %w", err)
		}
		return nil, err
	}
	if !info.IsDir() {
		return []string{w.path}, nil
	}
	w.single = false
	entries, err := os.ReadDir(w.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("the directory of manifests can't be read: %w", err)
	}
	origins := make([]string, 0, len(entries))
	for _, e := range entries {
		if !ignored(e.Name()) {
			origins = append(origins, filepath.Join(w.path, e.Name()))
		}
	}
	return origins, nil
}

// absentPath deals with there being nothing at the path. It counts as the deletion
// of everything once it has lasted, so that a directory can be swapped for another.
func (w *watch) absentPath(now time.Time) {
	if w.pathMissing.IsZero() {
		w.pathMissing = now
	}
	known := w.keeper.Names()
	if over := w.pathMissing.Add(pathGoneAfter); len(known) > 0 && now.Before(over) {
		w.rescan(over)
		return
	}
	for _, origin := range known {
		w.forget(origin)
	}
	w.note(notePath, "it doesn't exist; pods are read from it as soon as it does", now)
}

// absent deals with an origin that isn't there. It counts as deleted when it is
// still missing after a moment, so that editors may move it away and back.
func (w *watch) absent(origin string, f *seenFile, now time.Time) {
	if !w.keeper.Has(origin) {
		delete(w.files, origin)
		return
	}
	if f.missing.IsZero() {
		f.missing = now
	}
	if over := f.missing.Add(goneAfter); now.Before(over) {
		w.lookAt(origin, over)
		return
	}
	w.forget(origin)
}

// delete has what the origin defined be something new if it defines it again: it may be back before anybody has looked.
func (w *watch) delete(origin string) {
	w.keeper.Delete(origin)
	w.forget(origin)
}

func (w *watch) forget(origin string) {
	w.log.V(2).Info("Manifest removed", "origin", origin)
	w.keeper.Forget(origin)
	delete(w.files, origin)
	delete(w.due, origin)
	w.changed = true
}
