package room

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Probe is the name of a file in the root directory. After writes have failed, it is written to find out whether the
// disk can be written.
const Probe = ".disk-probe"

const (
	// watchEvery is the time between two measurements while a disk can't be written.
	watchEvery = time.Second
	// probeFirst is the time after which the probe is written again to a disk that fails. It doubles up to probeMost,
	// so that the end of a failure is found after at most twice its duration.
	probeFirst, probeMost = time.Second, time.Minute
	// quiet is the time without a failed write after which a disk with room isn't watched any more. Until then, retries
	// may fail, for example because of quotas, which can't be measured.
	quiet = 10 * time.Minute
	// settled is the time without a failed write after which a retry counts as successful.
	settled = 5 * time.Minute
	// grown and grownInodes are the increases of free room after which failed writes are retried on a disk that still
	// counts as full.
	grown, grownInodes = 1 << 20, 16
)

// WatchConfig configures a Watch. Every field is required, except Writes.
type WatchConfig struct {
	// Root is the root directory.
	Root string
	// Full returns those disks that are full, among the disks to which the agent and the container runtime write. It
	// may include disks that have room for root only.
	Full   func(context.Context) []FileSystem
	Events NodeEvents
	// Writes follows the writes that try the disk; nil for none.
	Writes *Writes
	// Filled is called when a write has failed because a disk is full. It must not block.
	Filled func()
	// Freed is called when failed writes may succeed again.
	Freed func()
	// Broken is called with the error if the disk of the root directory can't be written for a reason other than
	// missing room, and with nil when the disk can be written again.
	Broken func(error)
	Log    logr.Logger
}

// Watch watches disks on which writes have failed, until they can be written again. It is safe for concurrent use.
type Watch struct {
	conf   WatchConfig
	failed wake.Slot

	mu sync.Mutex
	// full are the disks without room, by mount point.
	full map[string]*shortage
	// text is the error of another program whose write failed on a full disk.
	text error
	// suspect says that a write failed with an error of the disk.
	suspect bool
	// broken is the error of the last probe of the root directory's disk, nil if it succeeded. probed is the time of
	// that probe, and pause the time until the next one. readOnly says that the disk was mounted read-only at that
	// time; a file system may also refuse writes by itself, after an error.
	broken   error
	probed   time.Time
	pause    time.Duration
	readOnly bool
}

// shortage describes a disk that has no room, or had none recently.
type shortage struct {
	// least is the least free room since the last retry, failed the time of the last failed write.
	least  FileSystem
	failed time.Time
	// tried is the free room at the last retry. With no more room than that, a retry would fail again, and free the
	// space that it used: an image that is larger than the disk would be pulled again and again.
	tried   FileSystem
	retried time.Time
	// over says that the disk has had room since the last failed write.
	over bool
}

// roomier reports whether a disk has so much more room that failed writes should be retried.
func (s *shortage) roomier(now FileSystem) bool {
	if !now.Full() && s.least.Full() {
		return s.tried.Point == "" || s.tried.Full() || now.Roomier(s.tried)
	}
	if !s.least.Full() { // the failed write was larger than the free room, or a quota is used up
		return now.Roomier(s.least) && now.Roomier(s.tried)
	}
	// On a disk without free space, free inodes don't count, because their number varies.
	bytes := s.least.Free < Enough && now.Free >= max(s.least.Free, s.tried.Free)+grown
	inodes := s.least.NoInodes() && now.FreeInodes >= max(s.least.FreeInodes, s.tried.FreeInodes)+grownInodes
	return bytes || inodes
}

// NewWatch returns a Watch. It does nothing before Run.
func NewWatch(c WatchConfig) *Watch {
	return &Watch{conf: c, failed: wake.NewSlot(), full: map[string]*shortage{}}
}

// Failed is called with the error of a write. Errors that aren't about a disk are ignored. Errors of other programs are
// texts that a pod may have chosen, so they are ignored if no disk is full.
func (w *Watch) Failed(err error) {
	// The measurement is made without the lock, because the file system may hang. File systems outside the root
	// directory, such as hostPath volumes, aren't measured at all: one that hangs would stop Run.
	on, own := w.own(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case own:
		w.filled(on, err)
	case atomicfile.DiskFull(err):
		w.text = err
	case saysBroken(err):
		w.suspect = true
	default:
		return
	}
	w.failed.Wake()
}

// own returns the file system on which a write of this process failed, if it is below the root directory.
func (w *Watch) own(err error) (FileSystem, bool) {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return FileSystem{}, false
	}
	path := w.conf.Root
	if known, ok := errors.AsType[*fs.PathError](err); ok {
		path = known.Path
	}
	if path != w.conf.Root && !strings.HasPrefix(path, w.conf.Root+"/") {
		return FileSystem{}, false
	}
	on, failed := Measure(path)
	return on, failed == nil && on.Size > 0
}

// saysBroken reports whether an error says that a disk is read-only or broken. A pod may have chosen the text;
// therefore the disk of the root directory is probed after such an error.
func saysBroken(err error) bool {
	text := err.Error()
	return strings.Contains(text, unix.EROFS.Error()) || strings.Contains(text, unix.EIO.Error())
}

// filled handles a failed write to a full disk. The caller holds mu.
func (w *Watch) filled(on FileSystem, err error) {
	s := w.full[on.Point]
	if s == nil {
		s = &shortage{over: true}
		w.full[on.Point] = s
	}
	if s.over && time.Since(s.retried) >= settled {
		s.tried = FileSystem{} // the last retry has succeeded: this is a new shortage
	}
	if s.over {
		w.conf.Log.Info("A disk is full: running pods run on, others wait for room", "path", on.Point,
			"err", err.Error())
		w.conf.Events.NodeEvent("Warning", pod.ReasonStorageFull, fmt.Sprintf(
			"A write failed, because the disk is full or a quota is used up: %s. Running pods run on; others wait for "+
				"room", on))
	}
	s.least, s.failed, s.over = on, time.Now(), false
	w.conf.Filled()
}

// Run watches the disks until ctx ends. The error is always nil.
func (w *Watch) Run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if w.follow(ctx) {
			again = time.After(watchEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.failed:
		case <-again:
		}
	}
}

// follow checks the disks on which writes failed, and reports whether there are any left to watch.
func (w *Watch) follow(ctx context.Context) bool {
	w.locate(ctx)
	freed := w.followFull()
	if w.followRoot() || freed {
		w.conf.Freed()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.full) > 0 || w.broken != nil || w.suspect
}

// locate finds the full disk on which a write of another program failed.
func (w *Watch) locate(ctx context.Context) {
	w.mu.Lock()
	err := w.text
	w.text = nil
	w.mu.Unlock()
	if err == nil {
		return
	}
	full := w.conf.Full(ctx)
	for i, on := range full { // for users other than root
		if now, err := Measure(on.Path); err == nil {
			full[i] = now
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, on := range full {
		if on.Full() {
			w.filled(on, err)
		}
	}
}

// followFull measures the full disks, and reports whether one has more room.
func (w *Watch) followFull() (freed bool) {
	w.mu.Lock()
	paths := make(map[string]string, len(w.full))
	for point, s := range w.full {
		paths[point] = s.least.Path
	}
	w.mu.Unlock()
	for point, path := range paths {
		now, err := Measure(path)
		freed = w.measured(point, now, err) || freed
	}
	return freed
}

// measured handles a new measurement of a full disk, and reports whether failed writes may succeed now.
func (w *Watch) measured(point string, now FileSystem, err error) (freed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.full[point]
	if err != nil {
		delete(w.full, point)
		return false
	}
	old := time.Since(s.failed) >= quiet
	if freed = s.roomier(now); freed {
		s.tried, s.retried = now, time.Now()
	}
	switch {
	case s.over:
	case !now.Full() && (s.least.Full() || freed || old):
		s.over = true
		w.conf.Log.Info("A full disk has room again", "path", point)
	case freed:
		now.Path = s.least.Path // a quota is measured where the write failed
		s.least = now
	default:
		s.least.Free, s.least.FreeInodes = min(now.Free, s.least.Free), min(now.FreeInodes, s.least.FreeInodes)
	}
	if s.over && old {
		delete(w.full, point)
	}
	return freed
}

// followRoot probes the disk of the root directory after a write failed with an error of a disk. It reports whether the
// disk has recovered.
func (w *Watch) followRoot() (recovered bool) {
	w.mu.Lock()
	was, mounted := w.broken, w.readOnly
	w.mu.Unlock()
	remounted := mounted && !readOnly(w.conf.Root) // made without the lock: the file system may hang
	w.mu.Lock()
	due := (w.suspect || was != nil) && (remounted || time.Since(w.probed) >= w.pause)
	if due {
		w.probed, w.suspect = time.Now(), false
	}
	w.mu.Unlock()
	if !due {
		return false
	}
	path := filepath.Join(w.conf.Root, Probe)
	end := w.conf.Writes.Track(path)
	err := atomicfile.Write(path, []byte("x"), 0o600)
	if err == nil {
		err = os.Remove(path)
	}
	end()
	if atomicfile.DiskFull(err) || !atomicfile.DiskFails(err) {
		err = nil
	}
	mounted = errors.Is(err, unix.EROFS) && readOnly(w.conf.Root)
	w.mu.Lock()
	w.broken, w.readOnly = err, mounted
	switch {
	case err == nil && was == nil: // the probe has succeeded: a pod may have chosen the text of the error
		w.pause = probeMost
	case err == nil || was == nil:
		w.pause = probeFirst
	default:
		w.pause = min(2*w.pause, probeMost)
	}
	w.mu.Unlock()
	if (err == nil) == (was == nil) && errors.Is(err, unix.EROFS) == errors.Is(was, unix.EROFS) {
		return false
	}
	w.conf.Broken(err) // called also if a broken disk became read-only
	if err == nil {
		w.conf.Log.Info("The disk of the root directory can be written again")
		return true
	}
	if was != nil {
		return false
	}
	w.conf.Log.Error(err, "The disk of the root directory can't be written: running pods run on, no pod starts")
	w.conf.Events.NodeEvent("Warning", pod.ReasonStorageFailed, fmt.Sprintf(
		"The disk of the root directory can't be written: %v. Running pods run on; no pod starts", err))
	return false
}

// readOnly reports whether a path is on a file system that is mounted read-only.
func readOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}
