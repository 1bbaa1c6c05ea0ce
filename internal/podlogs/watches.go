package podlogs

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// pollPeriod is how often a log is looked at where the kernel can't tell.
const pollPeriod = 500 * time.Millisecond

// watches shares one inotify instance among all followers, because a host allows
// few of them per user (fs.inotify.max_user_instances, often 128). There is none
// while nobody follows.
type watches struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher
	// done is closed when the goroutine that reads watcher has ended.
	done chan struct{}
	dirs map[string]map[*watch]struct{}
}

// watch is one follower's interest in a folder.
type watch struct {
	dir string
	// wake is a one-slot channel, filled when something in the folder changed.
	wake chan struct{}
	// polling is set where the folder can't be watched.
	polling bool
}

func newWatches() *watches {
	return &watches{dirs: map[string]map[*watch]struct{}{}}
}

// poll fires after a while where the folder can't be watched, else never.
func (w *watch) poll() <-chan time.Time {
	if !w.polling {
		return nil
	}
	return time.After(pollPeriod)
}

// add starts watching dir. It never fails: it falls back to polling.
func (ws *watches) add(dir string, log logr.Logger) *watch {
	w := &watch{dir: dir, wake: make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err := ws.watchDir(dir); err != nil {
		log.V(2).Info("Container log can't be watched, so it is looked at now and then", "dir", dir, "err", err)
		w.polling = true
	}
	if ws.dirs[dir] == nil {
		ws.dirs[dir] = map[*watch]struct{}{}
	}
	ws.dirs[dir][w] = struct{}{}
	return w
}

// watchDir makes sure that the kernel tells of changes in dir. The caller holds mu.
func (ws *watches) watchDir(dir string) error {
	if ws.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		ws.watcher, ws.done = watcher, make(chan struct{})
		go ws.dispatch(watcher, ws.done)
	}
	// Adding a folder again is cheap, and renews a watch that ended with a
	// folder that was removed and made anew.
	return ws.watcher.Add(dir)
}

// remove ends a watch, and with the last one the inotify instance.
func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	delete(ws.dirs[w.dir], w)
	if len(ws.dirs[w.dir]) == 0 {
		delete(ws.dirs, w.dir)
		if ws.watcher != nil {
			// It fails when the folder is gone, and the watch with it.
			_ = ws.watcher.Remove(w.dir)
		}
	}
	watcher, done := ws.watcher, ws.done
	if len(ws.dirs) > 0 {
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
func (ws *watches) dispatch(watcher *fsnotify.Watcher, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			ws.wake(filepath.Dir(event.Name))
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
			// Events were lost: anything may have changed.
			ws.wakeAll()
		}
	}
}

func (ws *watches) wake(dir string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.dirs[dir] {
		fill(w.wake)
	}
}

func (ws *watches) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, set := range ws.dirs {
		for w := range set {
			fill(w.wake)
		}
	}
}

// fill puts a wake-up into a one-slot channel.
func fill(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
