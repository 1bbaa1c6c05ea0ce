package file

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

const (
	// passEvery is the minimum time between two passes, which limits the work during a burst of changes. The first
	// change after an idle period isn't delayed.
	passEvery = 10 * time.Millisecond
	// unchangedFor is how long a watched file must be unchanged to be read if no event has reported its state.
	unchangedFor = 100 * time.Millisecond
	// openUnchangedFor is how long a file must be unchanged to be read if it isn't watched, or if a writer has opened
	// it and not closed it.
	openUnchangedFor = time.Second
	// goneAfter is how long a file must be missing to count as deleted.
	goneAfter = 50 * time.Millisecond
	// pathGoneAfter is how long the whole directory must be missing to count as gone.
	pathGoneAfter = time.Second
	// reachEvery is the interval of checks for unreachable manifests: mounting a disk causes no event.
	reachEvery = time.Second
	// holdAtMost limits how long a report is delayed while it isn't certain that missing files were deleted: they may
	// be replaced.
	holdAtMost = 5 * goneAfter
	// firstAtMost limits how long the first report waits for files that are being written.
	firstAtMost = 2 * time.Second
)

// watch is one run of a source. Only its goroutine uses it.
type watch struct {
	*Source
	watcher watcher
	// armed says that the watcher reports every change at once.
	armed bool
	// single says that the path is a file or missing: events are about the path itself.
	single bool
	// pathMissing is the time since which the path has been missing; zero if it exists.
	pathMissing time.Time
	// reached says that the manifests' directory can be read and is the same directory as before. While it is false, no
	// manifest counts as deleted.
	reached bool

	started  time.Time
	lastPass time.Time
	nextScan time.Time
	// wake is when the next pass is due.
	wake time.Time
	// due has the times at which origins have to be checked, by origin.
	due map[string]time.Time

	reported bool
	// changed says that the keeper has changes that haven't been reported yet.
	changed bool
	// heldSince is the time at which a report began to wait. It waits until it is certain whether missing files were
	// deleted. heldSince is zero if no report waits.
	heldSince time.Time
}

func newWatch(s *Source, now time.Time) *watch {
	return &watch{Source: s, watcher: s.watch(s.path), started: now, nextScan: now, wake: now,
		due: map[string]time.Time{}, single: true, reached: true}
}

// handle handles an event.
func (w *watch) handle(e filewatch.Event, now time.Time) {
	// A name that begins with ".." was renamed: volumes update their files by swapping the target of such a link.
	if e.Op == filewatch.Rescan || !w.pathMissing.IsZero() || !w.reached || !w.single &&
		strings.HasPrefix(e.Name, "..") {
		w.rescan(now)
	}
	origin := w.path
	if !w.single {
		origin = filepath.Join(w.path, e.Name)
	}
	if e.Op == filewatch.Rescan || !w.single && ignored(e.Name) {
		return
	}
	f := w.file(origin)
	f.dirty = true
	switch e.Op {
	case filewatch.Done:
		f.state = whole
		w.lookAt(origin, now)
	case filewatch.Writing:
		f.state = beingWritten
		w.lookAt(origin, now.Add(unchangedFor))
	case filewatch.Deleted:
		f.deleted = true
		w.lookAt(origin, now)
	case filewatch.Touched, filewatch.MovedAway:
		w.lookAt(origin, now)
	}
}

// pass does the scan and the checks that are due, and reports changes.
func (w *watch) pass(now time.Time) {
	if !now.Before(w.nextScan) {
		w.nextScan = now.Add(w.every)
		w.scan(now)
	}
	for origin, at := range w.due {
		if !now.Before(at) {
			delete(w.due, origin)
			w.check(origin, now)
		}
	}
	w.report(now)
	w.lastPass = now
	w.plan()
}

// plan computes when the next pass is due.
func (w *watch) plan() {
	w.wake = w.nextScan
	for _, at := range w.due {
		if at.Before(w.wake) {
			w.wake = at
		}
	}
	w.wakeAt(w.wake)
}

// wakeAt schedules a pass for the given time or earlier, but not too soon after the last one.
func (w *watch) wakeAt(at time.Time) {
	if at.Before(w.wake) {
		w.wake = at
	}
	if soonest := w.lastPass.Add(passEvery); w.wake.Before(soonest) {
		w.wake = soonest
	}
}

// lookAt schedules a check of an origin for the given time, replacing an earlier schedule.
func (w *watch) lookAt(origin string, at time.Time) {
	w.due[origin] = at
	w.wakeAt(at)
}

// rescan schedules a scan for the given time or earlier.
func (w *watch) rescan(at time.Time) {
	if at.Before(w.nextScan) {
		w.nextScan = at
	}
	w.wakeAt(at)
}

// report sends changes to the sink, unless the report has to wait.
func (w *watch) report(now time.Time) {
	if !w.changed && w.reported || w.holdReport(now) {
		return
	}
	w.heldSince = time.Time{}
	w.changed, w.reported = false, true
	w.sink.Report(w.keeper.Report())
	w.journal.Save()
}

// holdReport reports whether a report has to wait. While a file is missing but doesn't count as deleted yet, its pods
// may have moved to another file: that file would then look like a second claim to their names. The first report waits
// until it is complete.
func (w *watch) holdReport(now time.Time) bool {
	if !w.reported && now.Sub(w.started) < firstAtMost &&
		(len(w.due) > 0 || w.reached && !w.pathMissing.IsZero() && len(w.keeper.Names()) > 0) {
		return true
	}
	missing := false
	for origin := range w.due {
		if f := w.files[origin]; f != nil && !f.missing.IsZero() {
			missing = true
		}
	}
	if !missing {
		return false
	}
	if w.heldSince.IsZero() {
		w.heldSince = now
	}
	return now.Sub(w.heldSince) < holdAtMost
}

func (w *watch) note(topic, why string, now time.Time) {
	w.noted(w.keeper.Note(topic, w.path, why, now), now)
}

// noted schedules a pass that reports the keeper's notes if they have changed.
func (w *watch) noted(changed bool, now time.Time) {
	if changed {
		w.changed = true
		w.wakeAt(now)
	}
}
