// Package filewatch reports changes of files and directories with Linux's inotify(7). They need not exist yet. It also
// detects when they are replaced: by a rename, or by a changed link anywhere on their path, as in mounted ConfigMaps.
// While nothing changes, it uses no CPU time.
//
// All watchers of a process share one Instance. A Watcher reports each event. Settled reports, without data, when a
// burst of changes is over and no process writes to the files any more. FirstWrites reports the next write to a file.
//
// It uses the kernel's interface directly. Portable libraries hide IN_CLOSE_WRITE, the only event that distinguishes a
// finished file from a file that is still being written, and report every write in every directory on the path of a
// file.
//
// Package lockfile has its own inotify instance: it observes when one open file is opened and closed by processes, even
// after the file was moved, in step with its own flock(2).
package filewatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// Every is the interval at which an agent reads the files and directories that can't be watched.
const Every = 5 * time.Second

const (
	// sameError is the time for which an error isn't logged again: at a limit, watches may fail and succeed in turn.
	sameError = 10 * time.Minute
	// granularity is the assumed granularity of a file system's times.
	granularity = time.Second
)

// Instance is an inotify instance that the watchers of a process share, because a host allows each user only a few
// instances (fs.inotify.max_user_instances, often 128). It is open while there are watchers. Its methods may be called
// concurrently.
//
// Files and directories that can't be watched, for example because a limit is reached, are read at intervals, and
// watched as soon as possible. The log has one line when such a failure begins and one line when it ends.
type Instance struct {
	every, granularity time.Duration
	log                logr.Logger

	mu sync.Mutex
	// kernel is nil while there are no watchers, or while the kernel refuses to open an inotify instance.
	kernel *kernel
	// subscribers has each subscriber's errors, without duplicates; none if it watches all its files.
	subscribers map[subscriber][]error
	// since is when the present failure began, and reported says that it was logged. logged has the times at which
	// errors were logged, by their texts.
	since    time.Time
	reported bool
	logged   map[string]time.Time
}

// kernel is an open inotify instance. The Instance's mutex guards it.
type kernel struct {
	file *os.File
	// done is closed when the goroutine that reads the file has ended.
	done chan struct{}
	// points has the spots of each watch descriptor: all paths and subscribers that watch the same file share one
	// watch.
	points map[int32]map[point]*spot
	// adding has the calls that are adding a watch: an event may arrive before its descriptor is in points.
	adding map[*addition]struct{}
}

// addition has the descriptors of the events that have arrived since a call of Instance.add began.
type addition struct{ events map[int32]struct{} }

// point is a path that a subscriber watches.
type point struct {
	subscriber subscriber
	path       string
}

// handle identifies a watch in the kernel.
type handle struct {
	kernel     *kernel
	descriptor int32
}

// subscriber receives events. Its methods are called with the Instance's mutex held, and must not block.
type subscriber interface {
	// event handles the kernel's event at a spot.
	event(s *spot, mask uint32, name string)
	// lost handles the loss of events.
	lost()
}

// New returns an Instance, which is opened by the first watcher. It reads the files that can't be watched at the
// interval every.
func New(every time.Duration, log logr.Logger) *Instance {
	return &Instance{every: every, granularity: granularity, log: log, subscribers: map[subscriber][]error{},
		logged: map[string]time.Time{}}
}

// Problem returns an error with advice while some files can't be watched, and the time since which that is so.
func (i *Instance) Problem() (time.Time, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, errs := range i.subscribers {
		if len(errs) > 0 {
			return i.since, errs[0]
		}
	}
	return time.Time{}, nil
}

func (i *Instance) join(s subscriber) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subscribers[s] = nil
}

// leave ends all watches of a subscriber. When the last subscriber leaves, it closes the instance.
func (i *Instance) leave(s subscriber) {
	i.mu.Lock()
	delete(i.subscribers, s)
	k := i.kernel
	if k != nil && len(i.subscribers) > 0 {
		for descriptor, points := range k.points {
			for p := range points {
				if p.subscriber == s {
					k.remove(descriptor, p)
				}
			}
		}
		k = nil
	} else {
		i.kernel = nil
	}
	over := i.over() && len(i.subscribers) > 0
	i.mu.Unlock()
	if over {
		i.logOver()
	}
	if k != nil {
		_ = k.file.Close() // ends the reading
		<-k.done
	}
}

// add makes the kernel report events at a spot, in addition to the events that are already watched at the same file.
// The subscriber has to have joined before.
func (i *Instance) add(by subscriber, s *spot, mask uint32) (handle, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.subscribers[by]; !ok {
		return handle{}, os.ErrClosed
	}
	k, err := i.open()
	if err != nil {
		return handle{}, err
	}
	during, p := &addition{map[int32]struct{}{}}, point{by, s.path}
	k.adding[during] = struct{}{}
	i.mu.Unlock() // not held during k.add, because the file system may not answer
	descriptor, err := k.add(s.path, mask|unix.IN_MASK_ADD)
	i.mu.Lock()
	delete(k.adding, during)
	if err != nil {
		return handle{}, err
	}
	if k.points[descriptor] == nil {
		k.points[descriptor] = map[point]*spot{}
	}
	_, had := k.points[descriptor][p]
	k.points[descriptor][p] = s
	if _, ok := i.subscribers[by]; !ok {
		k.remove(descriptor, p)
		return handle{}, os.ErrClosed
	}
	if _, missed := during.events[descriptor]; missed && !had {
		by.lost()
	}
	return handle{k, descriptor}, nil
}

// remove ends a subscriber's watch of a path.
func (i *Instance) remove(h handle, by subscriber, path string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	h.kernel.remove(h.descriptor, point{by, path})
}

// open returns the open instance. The caller holds mu.
func (i *Instance) open() (*kernel, error) {
	if i.kernel != nil {
		return i.kernel, nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", Explain(err))
	}
	k := &kernel{file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		points: map[int32]map[point]*spot{}, adding: map[*addition]struct{}{}}
	i.kernel = k
	go i.read(k)
	return k, nil
}

// failing records why a subscriber can't watch some files; without errs, the subscriber watches all of them. It logs a
// new error, and the end of the last one.
func (i *Instance) failing(s subscriber, errs []error) {
	i.mu.Lock()
	if last, ok := i.subscribers[s]; !ok || len(last) == 0 && len(errs) == 0 {
		i.mu.Unlock()
		return
	}
	before := i.errors()
	i.subscribers[s] = errs
	after, now := i.errors(), time.Now()
	maps.DeleteFunc(i.logged, func(text string, at time.Time) bool {
		_, lasts := after[text]
		return !lasts && now.Sub(at) >= sameError
	})
	var report []error
	for text, err := range after {
		if _, ok := i.logged[text]; !ok {
			i.logged[text], i.reported = now, true
			report = append(report, err)
		}
	}
	if len(before) == 0 {
		i.since = now
	}
	over := i.over()
	i.mu.Unlock()
	for _, err := range report {
		i.log.Error(err, "Files can't be watched for changes: they are read at intervals until they can be",
			"period", i.every)
	}
	if over {
		i.logOver()
	}
}

func (i *Instance) logOver() { i.log.Info("All files are watched for changes again") }

// over reports, once, that a failure that was logged has ended. The caller holds mu.
func (i *Instance) over() bool {
	over := i.reported && len(i.errors()) == 0
	if over {
		i.reported = false
	}
	return over
}

// errors returns the errors of all subscribers by their texts. The caller holds mu.
func (i *Instance) errors() map[string]error {
	all := map[string]error{}
	for _, errs := range i.subscribers {
		for _, err := range errs {
			all[err.Error()] = err
		}
	}
	return all
}

// read dispatches the kernel's events until the file is closed.
func (i *Instance) read(k *kernel) {
	defer close(k.done)
	// The buffer has room for many events, so that a burst of events takes few reads.
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := k.file.Read(buf)
		if err != nil {
			i.dropped(k, err)
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			descriptor, mask, name, size := decode(rest)
			rest = rest[size:]
			i.dispatch(k, descriptor, mask, name)
		}
	}
}

// dropped makes the subscribers watch everything again, unless the instance was closed because its last subscriber
// left.
func (i *Instance) dropped(k *kernel, err error) {
	i.mu.Lock()
	unexpected := i.kernel == k
	if unexpected {
		i.kernel = nil
		for s := range i.subscribers {
			s.lost()
		}
	}
	i.mu.Unlock()
	if unexpected {
		i.log.Error(err, "Can't read the kernel's events of files: watching everything again")
		_ = k.file.Close()
	}
}

func (i *Instance) dispatch(k *kernel, descriptor int32, mask uint32, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for s := range i.subscribers {
			s.lost()
		}
		return
	}
	for a := range k.adding {
		a.events[descriptor] = struct{}{}
	}
	for p, s := range k.points[descriptor] {
		p.subscriber.event(s, mask, name)
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(k.points, descriptor)
	}
}

// decode reads the struct inotify_event at the head of b.
func decode(b []byte) (descriptor int32, mask uint32, name string, size int) {
	descriptor = int32(binary.NativeEndian.Uint32(b[0:]))
	mask = binary.NativeEndian.Uint32(b[4:])
	size = min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])), len(b))
	padded := b[unix.SizeofInotifyEvent:size]
	if end := bytes.IndexByte(padded, 0); end >= 0 {
		padded = padded[:end]
	}
	return descriptor, mask, string(padded), size
}

// add adds a watch. For a file that already has a watch, the kernel returns the same descriptor again; for a file that
// has replaced it, another descriptor.
func (k *kernel) add(path string, mask uint32) (descriptor int32, err error) {
	conn, err := k.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var added int
	var addErr error
	err = conn.Control(func(fd uintptr) { added, addErr = unix.InotifyAddWatch(int(fd), path, mask) })
	switch err = errors.Join(err, addErr); {
	case errors.Is(err, unix.ENOSPC):
		return 0, Explain(err)
	case err != nil:
		return 0, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return int32(added), nil
}

// remove removes a point, and ends the watch together with its last point. If the watch has already ended, because its
// file was removed, that is no error.
func (k *kernel) remove(descriptor int32, p point) {
	points, ok := k.points[descriptor]
	if !ok {
		return
	}
	if delete(points, p); len(points) > 0 {
		return
	}
	delete(k.points, descriptor)
	if conn, err := k.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(descriptor)) })
	}
}
