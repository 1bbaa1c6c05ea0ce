// Package filewatch reports changes of files and directories with Linux's inotify(7). They need not exist yet. It
// also detects when they are replaced: by a rename, or by a changed link anywhere on their path, as in mounted
// ConfigMaps. While nothing changes, it uses no CPU time.
//
// A Watcher reports each event. Settled reports, without data, when a burst of changes is over and no process writes
// to the files any more.
//
// It uses the kernel's interface directly. Portable libraries hide IN_CLOSE_WRITE, the one event that distinguishes a
// finished file from one that is still being written, and report every write in every directory on the way to a file.
//
// Package lockfile has an inotify instance of its own: it follows the opening and closing of one open file, even
// after that was moved, in step with its own flock(2).
package filewatch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
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
	// Rescan: the caller has to call Arm and read everything again. Events were lost, or a directory or link on the
	// way was added, removed or replaced.
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

// Watcher watches paths. Its methods may be called concurrently.
type Watcher struct {
	lead   func(Trail)
	file   *os.File
	events chan Event
	stop   chan struct{}
	done   chan struct{}

	mu sync.Mutex
	// trail holds the watched files and directories; spots has the same files and directories by watch descriptor:
	// two paths may lead to one file.
	trail Trail
	spots map[int32][]*spot
}

// Open returns a watcher, which watches nothing until Arm is called. Each Arm calls lead, which adds the files and
// directories to watch to a trail. The watcher has a goroutine, which ends with Close.
func Open(lead func(Trail)) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("can't watch files for changes: inotify_init: %w", advised(err))
	}
	w := &Watcher{
		lead:   lead,
		file:   os.NewFile(uintptr(fd), "inotify"),
		events: make(chan Event),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	go w.read()
	return w, nil
}

// Events returns the channel of changes. It is closed by Close, and when the kernel's events can't be read any more.
func (w *Watcher) Events() <-chan Event { return w.events }

// Close ends watching and waits for the watcher's goroutine. It may be called once.
func (w *Watcher) Close() error {
	close(w.stop)
	err := w.file.Close()
	<-w.done
	return err
}

// Arm makes the kernel report changes of all files and directories that are on the trail now, and of no others. The
// caller has to call it before it reads the files, and again after a Rescan, so that no change in between is missed.
// The error names the files and directories that aren't watched.
func (w *Watcher) Arm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 4 // a trail that changes faster is reported by its events
	added := map[int32]bool{}
	next, err := w.follow(), error(nil)
	for range most {
		err = w.watch(next, added)
		// A change before the watch began may lead to another trail.
		again := w.follow()
		if again.equal(next) {
			break
		}
		next = again
	}
	for wd := range added {
		if w.spots[wd] == nil {
			w.remove(wd)
		}
	}
	return err
}

func (w *Watcher) follow() Trail {
	t := Trail{}
	w.lead(t)
	return t
}

// watch adds watches for a trail. It records the descriptors of all watches, earlier ones included, in added.
func (w *Watcher) watch(next Trail, added map[int32]bool) error {
	for wd := range w.spots {
		added[wd] = true
	}
	w.trail, w.spots = next, make(map[int32][]*spot, len(next))
	var errs []error
	// In this order, the replacement of a directory that isn't watched yet is reported by its parent.
	for _, path := range slices.Sorted(maps.Keys(next)) {
		// The same file gives the same descriptor again; a file that replaced it gives another.
		wd, err := w.add(path, next[path].mask()|unix.IN_MASK_ADD)
		if err != nil {
			errs = append(errs, fmt.Errorf("can't watch %s for changes: %w", path, advised(err)))
			continue
		}
		w.spots[wd] = append(w.spots[wd], next[path])
	}
	return errors.Join(errs...)
}

func (w *Watcher) add(path string, mask uint32) (wd int32, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var addErr error
	err = conn.Control(func(fd uintptr) {
		var n int
		n, addErr = unix.InotifyAddWatch(int(fd), path, mask)
		wd = int32(n)
	})
	return wd, errors.Join(err, addErr)
}

// remove ends a watch. A watch that has already ended, because its file was removed, is no error.
func (w *Watcher) remove(wd int32) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyRmWatch(int(fd), uint32(wd))
	})
}

// unfinished returns a file at the end of the trail that is open for writing in any process; "" if there is none.
func (w *Watcher) unfinished() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, s := range w.trail {
		if s.file && isWritten(path) {
			return path
		}
	}
	return ""
}

// advised adds advice to an error that says that an inotify limit is exhausted.
func advised(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_instances (or the limit of open files)", err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_watches", err)
	}
	return err
}
