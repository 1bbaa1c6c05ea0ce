package room

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Probe is the name of the file in the root directory by which a disk is tried that can't be written.
const Probe = ".disk-probe"

const (
	// watchEvery is the time between two measurements while a disk can't be written.
	watchEvery = time.Second
	// probeFirst is the time after which the probe is written again to a disk that fails. It doubles up to probeMost:
	// the end of a failure is found in no more time than it took.
	probeFirst, probeMost = time.Second, time.Minute
	// quiet is the time without a failed write for which a disk with room is still followed: retries may fail, and
	// quotas can't be measured.
	quiet = 10 * time.Minute
	// settled is the time without a failed write after which a retry counts as successful.
	settled = 5 * time.Minute
	// grown and grownInodes are the additional free room for which failed writes are tried again on a disk that still
	// counts as full.
	grown, grownInodes = 1 << 20, 16
)

// WatchConfig configures a Watch. Every field is required, except Writes.
type WatchConfig struct {
	// Root is the root directory.
	Root string
	// Full returns the full ones of the disks that the agent and the container runtime write to; also those with room
	// for root only.
	Full   func(context.Context) []FileSystem
	Events NodeEvents
	// Writes follows the writes that try the disk; nil for none.
	Writes *Writes
	// Filled is called when a write has failed because a disk is full. It must not block.
	Filled func()
	// Freed is called when failed writes may succeed again.
	Freed func()
	// Broken is called with the error for which the disk of the root directory can't be written, other than missing
	// room, and with nil when it can again.
	Broken func(error)
	Log    logr.Logger
}

// Watch follows disks on which writes have failed, until they can be written again. It is safe for concurrent use.
type Watch struct {
	conf   WatchConfig
	failed wake.Slot

	mu sync.Mutex
	// full are the disks without room, by mount point.
	full map[string]*shortage
	// text is the error of another program that has found a disk full.
	text error
	// suspect says that a write failed with an error of the disk.
	suspect bool
	// broken is the error of the disk of the root directory, probed when it was tried last, pause the time until it is
	// tried again, and readOnly whether it was mounted read-only then: a file system may also refuse writes by itself,
	// after an error.
	broken   error
	probed   time.Time
	pause    time.Duration
	readOnly bool
}

// shortage is a disk without room, or one that had none.
type shortage struct {
	// least is the smallest room since the last retry, failed the time of the last failed write.
	least  FileSystem
	failed time.Time
	// tried is the room at the last retry; a retry with no more than that would fail, too, and free what it wrote: an
	// image that is larger than the disk would be pulled again and again.
	tried   FileSystem
	retried time.Time
	// over says that the disk has had room since the last failed write.
	over bool
}

// roomier reports whether there is enough more room on a disk to try failed writes again.
func (s *shortage) roomier(now FileSystem) bool {
	if !now.Full() && s.least.Full() {
		return s.tried.Point == "" || s.tried.Full() || now.Roomier(s.tried)
	}
	if !s.least.Full() { // the write was larger than the free room, or a quota is used up
		return now.Roomier(s.least) && now.Roomier(s.tried)
	}
	// Free inodes come and go: on a disk without space they don't count.
	bytes := s.least.Free < Enough && now.Free >= max(s.least.Free, s.tried.Free)+grown
	inodes := s.least.NoInodes() && now.FreeInodes >= max(s.least.FreeInodes, s.tried.FreeInodes)+grownInodes
	return bytes || inodes
}

// NewWatch returns a Watch. It does nothing before Run.
func NewWatch(c WatchConfig) *Watch {
	return &Watch{conf: c, failed: wake.NewSlot(), full: map[string]*shortage{}}
}

// Failed is called with the error of a write. Errors that aren't about a disk are ignored, and so are the texts of
// other programs if no disk is full: a pod may have chosen what they say.
func (w *Watch) Failed(err error) {
	// Without the lock: the file system may hang. Those outside the root directory, such as hostPath volumes, aren't
	// measured here: one that hangs would stop Run.
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

// own returns the file system of a failed write of this process below the root directory.
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

// saysBroken reports whether an error says that a disk is read-only or broken, perhaps in a pod's words: then the disk
// of the root directory is tried.
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
		s.tried = FileSystem{} // the last retry has worked: this is another shortage
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

// Run follows the disks until ctx ends. The error is always nil.
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

// follow checks the disks on which writes failed, and reports whether there are any.
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

// locate finds the full disk that another program has met.
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
		if now, err := Measure(on.Point); err == nil {
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
	points := slices.Collect(maps.Keys(w.full))
	w.mu.Unlock()
	for _, point := range points {
		now, err := Measure(point)
		freed = w.measured(point, now, err) || freed
	}
	return freed
}

// measured handles the new room on a full disk, and reports whether failed writes may succeed.
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
		s.least = now
	default:
		s.least.Free, s.least.FreeInodes = min(now.Free, s.least.Free), min(now.FreeInodes, s.least.FreeInodes)
	}
	if s.over && old {
		delete(w.full, point)
	}
	return freed
}

// followRoot tries the disk of the root directory if a write failed with an error of a disk, and reports whether it
// has recovered.
func (w *Watch) followRoot() (recovered bool) {
	w.mu.Lock()
	was, mounted := w.broken, w.readOnly
	w.mu.Unlock()
	remounted := mounted && !readOnly(w.conf.Root) // without the lock: the file system may hang
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
	case err == nil && was == nil: // a pod may have chosen the text of the error
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
	w.conf.Broken(err) // also if a broken disk became read-only
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
