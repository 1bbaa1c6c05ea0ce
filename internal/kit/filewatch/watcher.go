package filewatch

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Op is a kind of change of a name in a directory.
type Op int

const (
	// Done: the file was closed after writing, or moved into place: it is complete.
	Done Op = iota
	// Writing: the file was created or written to, and may be incomplete.
	Writing
	// Touched: something about the file changed, such as its mode; the file may be complete or not.
	Touched
	// MovedAway: the file was renamed, or moved to another directory.
	MovedAway
	// Deleted: the name was removed.
	Deleted
	// Rescan: the caller has to call Arm and read everything again. Events were lost, a directory or link on the way
	// was added, removed or replaced, or a file that can't be watched has changed.
	Rescan
)

func (o Op) String() string {
	return [...]string{"done", "writing", "touched", "moved away", "deleted", "rescan"}[o]
}

// Event is one change. Name is the file's name in the directory Dir; with Rescan, either may be empty.
type Event struct {
	Dir, Name string
	Op        Op
}

// maxQueue is how many events wait for a watcher's reader. If there are more, it has to read everything again. The
// kernel's own queue has the same length (fs.inotify.max_queued_events).
const maxQueue = 16384

// Watcher watches paths. Its methods may be called concurrently.
type Watcher struct {
	instance *Instance
	lead     func(Trail)
	events   chan Event
	stop     chan struct{}
	done     chan struct{}

	// arming guards the trail and its watches. It may be held for long: file systems may not answer.
	arming sync.Mutex
	trail  Trail
	// handles are the watches, by path. unwatched has the states of the spots that can't be watched when they were
	// last read.
	handles   map[string]handle
	unwatched map[string]state

	// mu guards the events that wait for the reader, and the time at which the unwatched spots are read next, zero for
	// never. queued is signaled when one of these has changed.
	mu     sync.Mutex
	queue  []Event
	due    time.Time
	queued wake.Slot
}

// Open returns a watcher, which watches nothing until Arm is called. Each Arm calls lead, which adds the files and
// directories to watch to a trail. The watcher has a goroutine, which ends with Close.
func (i *Instance) Open(lead func(Trail)) *Watcher {
	w := &Watcher{
		instance:  i,
		lead:      lead,
		events:    make(chan Event),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
		handles:   map[string]handle{},
		unwatched: map[string]state{},
		queued:    wake.NewSlot(),
	}
	i.join(w)
	go w.run()
	return w
}

// Events returns the channel of changes. It is closed by Close. A change of a file that can't be watched is reported
// later, as Rescan.
func (w *Watcher) Events() <-chan Event { return w.events }

// Close ends watching and waits for the watcher's goroutine. It may be called once.
func (w *Watcher) Close() {
	close(w.stop)
	<-w.done
	w.instance.leave(w)
}

// Arm makes the kernel report changes of all files and directories that are on the trail now, and of no others. The
// caller has to call Arm before it reads the files, and again after a Rescan, so that no change in between is missed.
// An error says why a file or directory can't be watched. Such a file is read at intervals, until a Rescan reports that
// it can be watched.
func (w *Watcher) Arm() error {
	w.arming.Lock()
	defer w.arming.Unlock()
	const most = 4 // if the trail still changes after that, events report it
	next := w.follow()
	var errs []error
	for range most {
		errs = w.watch(next)
		// A change before the watches began may have changed the trail.
		again := w.follow()
		if again.equal(next) {
			break
		}
		next = again
	}
	for path := range w.handles {
		if w.trail[path] == nil {
			w.release(path)
		}
	}
	return w.report(errs)
}

func (w *Watcher) follow() Trail {
	t := Trail{}
	w.lead(t)
	return t
}

// watch adds watches for a trail. It keeps the watches of other directories for now: the event by which a directory
// leaves the trail may still have to arrive.
func (w *Watcher) watch(next Trail) (errs []error) {
	w.trail = next
	clear(w.unwatched)
	// Parents come before their directories, so that a parent reports the replacement of a directory that isn't watched
	// yet.
	for _, path := range slices.Sorted(maps.Keys(next)) {
		if err := w.add(next[path]); err != nil {
			errs = append(errs, err)
			w.unwatched[path] = next[path].state(w.instance.granularity)
		}
	}
	return errs
}

// add makes the kernel report changes at a spot.
func (w *Watcher) add(s *spot) error {
	h, err := w.instance.add(w, s, s.mask())
	if before, ok := w.handles[s.path]; ok && (err != nil || before != h) {
		w.release(s.path)
	}
	if err == nil {
		w.handles[s.path] = h
	}
	return err
}

func (w *Watcher) release(path string) {
	w.instance.remove(w.handles[path], w, path)
	delete(w.handles, path)
}

// report passes the errors of spots that can't be watched to the instance, each once, and schedules the next reading of
// these spots.
func (w *Watcher) report(errs []error) error {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	errs = slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })
	w.instance.failing(w, errs)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Time{}
	if len(errs) > 0 {
		w.due = time.Now().Add(w.instance.every)
	}
	w.queued.Wake()
	return errors.Join(errs...)
}

// retry tries again to watch the spots that couldn't be watched. It reports a Rescan if that succeeds for a spot, or if
// a spot has changed.
func (w *Watcher) retry() {
	w.arming.Lock()
	defer w.arming.Unlock()
	var errs []error
	changed := Event{Op: Rescan}
	found := false
	for _, path := range slices.Sorted(maps.Keys(w.unwatched)) {
		s := w.trail[path]
		err := w.add(s)
		now := s.state(w.instance.granularity)
		name, differs := now.difference(w.unwatched[path])
		if err == nil {
			delete(w.unwatched, path)
		} else {
			errs = append(errs, err)
			w.unwatched[path] = now
		}
		if (err == nil || differs) && !found {
			found, changed.Dir, changed.Name = true, path, name
		}
	}
	_ = w.report(errs)
	if found {
		w.push(changed)
	}
}

// unfinished returns a file at the end of the trail that is open for writing in any process; "" if there is none.
func (w *Watcher) unfinished() string {
	w.arming.Lock()
	defer w.arming.Unlock()
	for path, s := range w.trail {
		if s.file && isWritten(path) {
			return path
		}
	}
	return ""
}

// run sends events to the watcher's reader, and calls retry when the unwatched spots are due to be read.
func (w *Watcher) run() {
	defer close(w.done)
	defer close(w.events)
	var events []Event
	for {
		var next time.Time
		events, next = w.pending(events)
		var out chan<- Event
		var first Event
		if len(events) > 0 {
			out, first = w.events, events[0]
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-w.stop:
			return
		case out <- first:
			events = events[1:]
		case <-w.queued:
		case <-due:
			w.retry()
		}
	}
}

// pending returns the events to send and the time at which unwatched spots are read next. The events are the earlier
// ones or, if there are none, the queued ones.
func (w *Watcher) pending(earlier []Event) (events []Event, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(earlier) == 0 {
		earlier, w.queue = w.queue, nil
	}
	return earlier, w.due
}

// push queues an event for the reader.
func (w *Watcher) push(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := len(w.queue); {
	case n >= maxQueue:
		w.queue = []Event{{Op: Rescan}}
	case n == 0 || w.queue[n-1] != e:
		w.queue = append(w.queue, e)
	}
	w.queued.Wake()
}

// event implements subscriber.
func (w *Watcher) event(s *spot, mask uint32, name string) {
	if e, ok := s.event(mask, name); ok {
		w.push(e)
	}
}

// lost implements subscriber.
func (w *Watcher) lost() { w.push(Event{Op: Rescan}) }
