package filewatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// FirstWrites reports the next write to each of many files, and only that one: a file that is written to all the time
// costs one event. Its methods may be called concurrently.
type FirstWrites struct {
	written chan []string

	mu sync.Mutex
	// fd is the inotify instance while Run runs, else -1.
	fd    int
	paths map[int32]string
}

// NewFirstWrites returns a FirstWrites that watches no file yet.
func NewFirstWrites() *FirstWrites {
	return &FirstWrites{fd: -1, written: make(chan []string), paths: map[int32]string{}}
}

// Watch makes Written report the next write to the file that is at path now. It doesn't follow a link at path. It
// fails unless Run is running.
func (f *FirstWrites) Watch(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wd, err := unix.InotifyAddWatch(f.fd, path, unix.IN_MODIFY|unix.IN_ONESHOT|unix.IN_DONT_FOLLOW)
	if err != nil {
		return &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	f.paths[int32(wd)] = path
	return nil
}

// Written returns the channel of the paths of files that were written to since Watch was called for them.
func (f *FirstWrites) Written() <-chan []string { return f.written }

// Run reads the kernel's events until ctx ends, and returns ctx's error then. It may be called once.
func (f *FirstWrites) Run(ctx context.Context) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch files for their next write: inotify_init: %w", advised(err))
	}
	file := os.NewFile(uintptr(fd), "inotify")
	f.use(fd)
	end := func() {
		f.use(-1)
		_ = file.Close()
	}
	stop := context.AfterFunc(ctx, end)
	defer func() {
		if stop() {
			end()
		}
	}()
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := file.Read(buf)
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if paths := f.decode(buf[:n]); len(paths) > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case f.written <- paths:
			}
		}
	}
}

func (f *FirstWrites) use(fd int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fd = fd
}

// decode returns the paths that were written to. The kernel ends a watch with its first event, and when its file is
// removed.
func (f *FirstWrites) decode(b []byte) (paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask, _, size := decode(b)
		b = b[size:]
		if path, ok := f.paths[wd]; ok && mask&unix.IN_MODIFY != 0 {
			paths = append(paths, path)
		}
		delete(f.paths, wd)
	}
	return paths
}
