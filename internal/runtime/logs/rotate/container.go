package rotate

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// lingerTime is how long a runtime may take to release a file after it was asked to: it has
// to write what it had buffered, on a disk that may be slow. To ask it again too early would have it write to one
// file by two ways, and lines might change places.
const lingerTime = 5 * time.Second

// maxPause is the longest pause before something that failed is tried again. The first is an
// interval, and each is twice as long as the one before.
const maxPause = 5 * time.Minute

const (
	// longest and shortest are how long a log that grows isn't looked at.
	longest, shortest = time.Second, 100 * time.Millisecond
	// quietAtOnce is how many logs that don't grow are looked at in longest where the kernel doesn't report their next
	// write, which costs some 200 µs: that is how soon it is noticed that one begins to.
	quietAtOnce = 100
)

// container is what is remembered of one that runs. It belongs to look, and while it is
// queued or worked at, to the worker.
type container struct {
	Container
	// foreign is one whose log isn't below the root, or not named as a log.
	foreign bool
	// dir is the log's directory below the root, file its name there.
	dir  string
	file layout.Name
	// untidy is whether there may be something to compress or to remove, or the runtime may
	// not have followed a rotation: so it is at the first look, since nobody
	// knows what an earlier agent left.
	untidy bool
	// files is the MaxFiles that it was tidied up for last.
	files int
	// lingering is the newest rotated file if the runtime was still writing to it when
	// last looked at, since the time at which that was first seen.
	lingering layout.Name
	since     time.Time
	// rotating and tidying are apart, so that a disk too full to compress on
	// doesn't keep a log from being rotated.
	rotating, tidying tries
	// size is how large the log was when it was looked at last, which was at seen; rate is by how many bytes a second
	// it had grown, and next is when it is looked at again. watched is the inode whose next write the kernel reports, 0
	// for none. They are look's alone.
	size       int64
	seen, next time.Time
	rate       float64
	watched    uint64
}

// tries is how something fared: the failures since it last succeeded, and when it
// may be tried again.
type tries struct {
	failures int
	retry    time.Time
}

func (r *Rotator) newContainer(c Container) *container {
	k := &container{Container: c, untidy: true}
	rel, err := filepath.Rel(r.conf.Load().Root, c.Path)
	if err == nil && filepath.IsLocal(rel) {
		k.dir = filepath.Dir(rel)
		file, ok := layout.ParseName(filepath.Base(rel))
		if k.file = file; ok && file == layout.Current(file.Attempt) {
			return k
		}
	}
	k.foreign = true
	if c.Path != "" {
		r.log.V(2).Info("A log that isn't among the pods' logs is not rotated", "pod", logging.Ref(c.Pod),
			"containerName", c.Name, "path", c.Path)
	}
	return k
}

// due says whether there is something to do for a container.
func (r *Rotator) due(c *container, now time.Time, conf *Config, quiet time.Duration) bool {
	if c.untidy && !now.Before(c.tidying.retry) {
		return true
	}
	if now.Before(c.rotating.retry) || now.Before(c.next) {
		return false
	}
	// This only says where to look more closely, so it may be misled by a link.
	var stat unix.Stat_t
	if err := unix.Lstat(c.Path, &stat); err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	c.measured(now, stat.Size, conf.MaxSize, quiet)
	if c.rate == 0 && stat.Size < conf.MaxSize {
		r.awaitWrite(c, &stat, now, conf)
	}
	return stat.Size >= conf.MaxSize
}

// awaitWrite has the kernel report the next write to a log that doesn't grow, so that it needs no look before.
func (r *Rotator) awaitWrite(c *container, stat *unix.Stat_t, now time.Time, conf *Config) {
	if c.watched != stat.Ino {
		if err := r.writes.Watch(c.Path); err != nil {
			return // it is looked at now and then
		}
		var since unix.Stat_t
		if err := unix.Lstat(c.Path, &since); err != nil || since.Ino != stat.Ino || since.Size != stat.Size {
			c.next = now.Add(shortest)
			return
		}
		c.watched = stat.Ino
	}
	c.next = now.Add(conf.Interval)
}

// measured takes down how large the log is, and says when it is looked at again: when it will be too large, if
// it goes on growing like this, and after the period quiet if it doesn't grow.
func (c *container) measured(now time.Time, size, maxSize int64, quiet time.Duration) {
	grown, since := size-c.size, now.Sub(c.seen)
	if grown < 0 {
		grown = size // of a new file
	}
	c.rate = 0
	if since > 0 && !c.seen.IsZero() {
		c.rate = float64(grown) / since.Seconds()
	}
	c.size, c.seen, c.next = size, now, now.Add(quiet)
	switch {
	case size >= maxSize:
		c.next = now // it is rotated now, and begins again
	case c.rate > 0:
		c.next = now.Add(min(longest, quiet, timeFor(maxSize-size, c.rate)))
	}
}

// pause is how long it is until the container has to be looked at again.
func (c *container) pause(now time.Time, maxSize int64) time.Duration {
	pause := max(c.next.Sub(now), c.rotating.retry.Sub(now))
	switch {
	case pause <= 0 && c.rate > 0: // it is rotated now
		pause = min(longest, timeFor(maxSize, c.rate))
	case pause <= 0:
		pause = longest
	}
	if c.untidy {
		pause = min(pause, max(longest, c.tidying.retry.Sub(now)))
	}
	return pause
}

// timeFor is how long it takes to write so many bytes.
func timeFor(bytes int64, rate float64) time.Duration {
	return max(shortest, time.Duration(min(float64(bytes)/rate, maxPause.Seconds())*float64(time.Second)))
}

// note takes down how a try went, and returns the failures in a row.
func (t *tries) note(err error, interval time.Duration) int {
	if err == nil {
		*t = tries{}
		return 0
	}
	pause := interval << min(t.failures, 16)
	if pause <= 0 || pause > maxPause {
		pause = max(maxPause, interval)
	}
	t.retry = time.Now().Add(pause)
	t.failures++
	return t.failures
}

// logTry takes note of how a try went, and logs failures once.
func (r *Rotator) logTry(c *container, t *tries, err error) {
	failures := t.note(err, r.conf.Load().Interval)
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	log := r.log.WithValues("pod", logging.Ref(c.Pod), "containerName", c.Name, "containerID", c.ID)
	switch {
	case failures == 1 && atomicfile.DiskFull(err):
		log.Info("No space is left to compress a rotated log; it is kept as it is for now", "err", err.Error())
	case failures == 2 && !atomicfile.DiskFull(err):
		// The first time, the container may just have ended.
		log.Error(err, "A container's log can't be rotated as it should be")
	default:
		log.V(4).Info("Log rotation failed", "err", err.Error(), "failures", failures)
	}
}
