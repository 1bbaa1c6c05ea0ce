package logs

import (
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// pollPeriod is the polling interval of a log whose changes the kernel doesn't report.
const pollPeriod = 500 * time.Millisecond

// watches shares one inotify instance among all followers, because a host allows few of them per user
// (fs.inotify.max_user_instances, often 128). Without followers, it has no inotify instance open.
type watches struct {
	mu      sync.Mutex
	watcher *filewatch.Watcher
	// done is closed when the goroutine that reads watcher has ended.
	done chan struct{}
	dirs map[string]map[*watch]struct{}
}

// watch is one follower's interest in a directory.
type watch struct {
	dir string
	// wake is signaled when something in the directory changed.
	wake wake.Slot
	// polling is set if the directory can't be watched.
	polling bool
}

func newWatches() *watches {
	return &watches{dirs: map[string]map[*watch]struct{}{}}
}

// poll fires after pollPeriod if the directory can't be watched, else never.
func (w *watch) poll() <-chan time.Time {
	if !w.polling {
		return nil
	}
	return time.After(pollPeriod)
}

// add starts watching dir. It never fails: it falls back to polling.
func (ws *watches) add(dir string, log logr.Logger) *watch {
	w := &watch{dir: dir, wake: wake.NewSlot()}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.dirs[dir] == nil {
		ws.dirs[dir] = map[*watch]struct{}{}
	}
	ws.dirs[dir][w] = struct{}{}
	if err := ws.arm(dir); err != nil {
		log.V(2).Info("Can't watch a container's log: polling it", "path", dir, "err", err)
		w.polling = true
	}
	return w
}

// arm makes the kernel report changes in dir. The caller holds mu.
func (ws *watches) arm(dir string) error {
	if ws.watcher == nil {
		watcher, err := filewatch.Open(ws.lead)
		if err != nil {
			return err
		}
		ws.watcher, ws.done = watcher, make(chan struct{})
		go ws.dispatch(watcher, ws.done)
	}
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return ws.watcher.Arm()
}

// lead adds the existing directories to the trail of watched ones. The caller holds mu.
func (ws *watches) lead(t filewatch.Trail) {
	for dir := range ws.dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Directory(dir)
		}
	}
}

// remove ends a watch, and closes the inotify instance with the last one.
func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	delete(ws.dirs[w.dir], w)
	if len(ws.dirs[w.dir]) == 0 {
		delete(ws.dirs, w.dir)
	}
	watcher, done := ws.watcher, ws.done
	if watcher != nil && len(ws.dirs) > 0 {
		// Errors were logged when the other watches were added.
		_ = watcher.Arm()
		watcher = nil
	} else {
		ws.watcher, ws.done = nil, nil
	}
	ws.mu.Unlock()
	if watcher != nil {
		_ = watcher.Close()
		<-done
	}
}

// dispatch wakes followers until watcher is closed.
func (ws *watches) dispatch(watcher *filewatch.Watcher, done chan<- struct{}) {
	defer close(done)
	for event := range watcher.Events() {
		ws.wake(event.Dir)
	}
}

// wake wakes the followers of a directory; all followers if dir is empty, which means that events were lost.
func (ws *watches) wake(dir string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for of, set := range ws.dirs {
		if of != dir && dir != "" {
			continue
		}
		for w := range set {
			w.wake.Wake()
		}
	}
}
