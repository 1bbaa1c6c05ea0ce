// Package inotify watches a folder of manifests, or one file, through Linux's
// inotify(7), whether it exists yet or not.
//
// It is used directly rather than through a portable library because the portable
// ones hide IN_CLOSE_WRITE: the one event that tells a finished file from one
// that is still being written.
package inotify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Op is what happened to a name.
type Op int

const (
	// Done: the file was closed after writing, or moved into place: it is whole.
	Done Op = iota
	// Writing: the file was created or written to, and may be half there.
	Writing
	// Touched: something about the file changed, such as its mode; it says
	// nothing about whether the file is whole.
	Touched
	// Gone: the name was removed or moved away.
	Gone
	// Rescan: look at everything again. Events were lost, or the folder itself
	// came, went or was replaced.
	Rescan
)

// Event is one change. Name is the file's name in its folder; empty for Rescan.
type Event struct {
	Name string
	Op   Op
}

const (
	fileMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
		unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
	selfMask   = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	parentMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
)

// Watcher watches one path. Its methods may be called from one goroutine.
type Watcher struct {
	path   string
	file   *os.File
	events chan Event
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	watches map[int32]watch
}

// watch is what a watch descriptor is for.
type watch struct {
	dir  string
	mask uint32
	// only is the single name that counts; empty if all do.
	only string
	// named says that events are told with their names; otherwise they
	// are reasons for a Rescan.
	named bool
}

// Open returns a watcher of path, which watches nothing until Arm is called. It
// has a goroutine, which ends with Close.
func Open(path string) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, exhausted(fmt.Errorf("can't watch %s for changes: inotify_init: %w", path, err), err)
	}
	w := &Watcher{
		path:    filepath.Clean(path),
		file:    os.NewFile(uintptr(fd), "inotify"),
		events:  make(chan Event),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		watches: map[int32]watch{},
	}
	go w.read()
	return w, nil
}

// Events returns the channel of changes. It is closed if watching broke down for
// good, and by Close.
func (w *Watcher) Events() <-chan Event { return w.events }

// Close ends watching and waits for the watcher's goroutine.
func (w *Watcher) Close() error {
	close(w.stop)
	err := w.file.Close()
	<-w.done
	return err
}

// Arm makes sure that what is at the path now is watched. To be called before
// everything is read, so that nothing happens unseen between the two. When the
// path doesn't exist, its nearest existing parent is watched for it to appear.
func (w *Watcher) Arm() error {
	var err error
	for range 3 {
		// What was there a moment ago may be gone already: then look again.
		if err = w.arm(); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			break
		}
	}
	return err
}

func (w *Watcher) arm() error {
	wanted, err := w.wanted()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	armed := map[int32]watch{}
	var failed error
	for _, want := range wanted {
		// The same folder gives the same descriptor again; one that was replaced
		// gives a new one, and the old falls out of use below.
		wd, err := w.add(want)
		if err != nil {
			failed = exhausted(fmt.Errorf("can't watch %s for changes: inotify_add_watch %s: %w", w.path, want.dir, err), err)
			continue
		}
		armed[wd] = want
	}
	for wd := range w.watches {
		if _, used := armed[wd]; !used {
			w.remove(wd)
		}
	}
	w.watches = armed
	return failed
}

// wanted returns what should be watched at this time.
func (w *Watcher) wanted() ([]watch, error) {
	info, err := os.Stat(w.path)
	if err == nil && info.IsDir() {
		wanted := []watch{{dir: w.path, mask: fileMask | selfMask, named: true}}
		// A folder that is reached through a link can be replaced without anything
		// happening to it.
		if link, err := os.Lstat(w.path); err == nil && link.Mode()&os.ModeSymlink != 0 {
			wanted = append(wanted, watch{dir: filepath.Dir(w.path), mask: parentMask | selfMask, only: filepath.Base(w.path)})
		}
		return wanted, nil
	}
	dir, name := filepath.Split(w.path)
	dir = filepath.Clean(dir)
	if parent, err := os.Stat(dir); err == nil && parent.IsDir() {
		return []watch{{dir: dir, mask: fileMask | selfMask, only: name, named: true}}, nil
	}
	for {
		up, name := filepath.Dir(dir), filepath.Base(dir)
		if up == dir {
			return nil, fmt.Errorf("can't watch %s for changes: no folder above it can be read", w.path)
		}
		if parent, err := os.Stat(up); err == nil && parent.IsDir() {
			return []watch{{dir: up, mask: parentMask | selfMask, only: name}}, nil
		}
		dir = up
	}
}

func (w *Watcher) add(want watch) (wd int32, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var addErr error
	err = conn.Control(func(fd uintptr) {
		var n int
		n, addErr = unix.InotifyAddWatch(int(fd), want.dir, want.mask)
		wd = int32(n)
	})
	return wd, errors.Join(err, addErr)
}

// remove ends a watch. That it ended on its own already, with its folder, is fine.
func (w *Watcher) remove(wd int32) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyRmWatch(int(fd), uint32(wd))
	})
}

// exhausted adds to an error what a person can do about used-up inotify limits.
func exhausted(err, cause error) error {
	switch {
	case errors.Is(cause, unix.EMFILE):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_instances (or the limit of open files)", err)
	case errors.Is(cause, unix.ENOSPC):
		return fmt.Errorf("%w; raise sysctl fs.inotify.max_user_watches", err)
	}
	return err
}
