package filewatch

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// FirstWrites reports the next write to each of many files, and only that one: a file that is written to continuously
// costs one event. Its methods may be called concurrently.
type FirstWrites struct {
	instance *Instance
	written  chan []string
	// adding is held while a file is added.
	adding sync.Mutex

	mu sync.Mutex
	// watched has the files whose next write the kernel reports. failed has the files that can't be watched because of
	// a limit, and limit is the last such error. pending has the files to report.
	watched map[string]*spot
	failed  map[string]struct{}
	limit   error
	pending []string
	// changed is signaled when failed or pending has grown.
	changed wake.Slot
}

// NewFirstWrites returns a FirstWrites that watches no file yet.
func (i *Instance) NewFirstWrites() *FirstWrites {
	return &FirstWrites{instance: i, written: make(chan []string), watched: map[string]*spot{},
		failed: map[string]struct{}{}, changed: wake.NewSlot()}
}

// Watch makes Written report the next write to the file that is at path now. It doesn't follow a link at path. It fails
// unless Run is running. If it fails because of a limit, Written reports the path as soon as the file can be watched.
func (f *FirstWrites) Watch(path string) error { return f.watch(path, nil) }

// watch is Watch with the argument limit, the error of a limit that was just reached, or nil. If limit isn't nil, watch
// returns it for an existing file without trying to watch the file.
func (f *FirstWrites) watch(path string, limit error) error {
	f.adding.Lock()
	defer f.adding.Unlock()
	s := &spot{path: path}
	_, err := os.Lstat(path) // a missing file is reported as missing, even at a limit
	switch {
	case err == nil && limit != nil:
		return limit
	case err == nil:
		f.mu.Lock()
		f.watched[path] = s
		f.mu.Unlock()
		_, err = f.instance.add(f, s, unix.IN_MODIFY|unix.IN_ONESHOT|unix.IN_DONT_FOLLOW)
	}
	f.instance.failing(f, f.added(s, err))
	return err
}

// added records the result of adding a spot. While files can't be watched because of a limit, it returns the last such
// error.
func (f *FirstWrites) added(s *spot, err error) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, s.path)
	if err != nil {
		f.forget(s)
	}
	if limits(err) {
		f.failed[s.path], f.limit = struct{}{}, err
		f.changed.Wake()
	}
	if len(f.failed) == 0 {
		return nil
	}
	return []error{f.limit}
}

// limits reports whether an error means that a limit is reached. For a file that is missing or can't be opened, it
// returns false.
func limits(err error) bool {
	var about *os.PathError
	return err != nil && !errors.As(err, &about) && !errors.Is(err, os.ErrClosed)
}

// Written returns the channel of the paths of files that were written to since Watch was called for them.
func (f *FirstWrites) Written() <-chan []string { return f.written }

// Run reports writes until ctx ends. It may be called once.
func (f *FirstWrites) Run(ctx context.Context) {
	f.instance.join(f)
	defer f.instance.leave(f)
	var paths []string
	var due <-chan time.Time
	for {
		failed := f.pass(&paths)
		var written chan<- []string
		if len(paths) > 0 {
			written = f.written
		}
		switch {
		case len(failed) == 0:
			due = nil
		case due == nil:
			due = time.After(f.instance.every)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case written <- paths:
			paths = nil
		case <-due:
			due = nil
			var limit error
			for _, path := range failed {
				switch err := f.watch(path, limit); {
				case err == nil:
					paths = append(paths, path)
				case limits(err):
					limit = err
				}
			}
		}
	}
}

// pass moves the files to report to paths, and returns the files that couldn't be watched.
func (f *FirstWrites) pass(paths *[]string) (failed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*paths = append(*paths, f.pending...)
	f.pending = nil
	return slices.Collect(maps.Keys(f.failed))
}

// event implements subscriber. The kernel ends a watch with the watch's first event, and when the watched file is
// removed.
func (f *FirstWrites) event(s *spot, mask uint32, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mask&unix.IN_MODIFY != 0 {
		f.pending = append(f.pending, s.path)
		f.changed.Wake()
	}
	if mask&(unix.IN_MODIFY|unix.IN_IGNORED) != 0 {
		f.forget(s)
	}
}

// forget removes a spot that isn't watched any more, unless another file at the same path is watched. The caller holds
// mu.
func (f *FirstWrites) forget(s *spot) {
	if f.watched[s.path] == s {
		delete(f.watched, s.path)
	}
}

// lost implements subscriber.
func (f *FirstWrites) lost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = slices.AppendSeq(f.pending, maps.Keys(f.watched))
	clear(f.watched)
	f.changed.Wake()
}
