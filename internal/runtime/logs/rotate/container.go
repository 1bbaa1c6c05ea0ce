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

// lingerTime is how long a runtime may take to release a file after the call to reopen the log: it has to write its
// buffers to a possibly slow disk. If the call were repeated before the release, the runtime would write to one file
// through two descriptors, and lines might change places.
const lingerTime = 5 * time.Second

// maxPause is the longest delay before a failed operation is retried. The first delay is an interval, and each is
// twice as long as the previous one.
const maxPause = 5 * time.Minute

const (
	// longest and shortest bound the time between two checks of a log that grows.
	longest, shortest = time.Second, 100 * time.Millisecond
	// quietAtOnce determines the time between two checks of a log that doesn't grow, if the kernel can't report its
	// next write: longest, plus longest for every quietAtOnce running containers. A check takes some 200 µs of CPU
	// time; the later it comes, the later a new write is noticed.
	quietAtOnce = 100
)

// container is the rotator's state of a running container. scan owns it, except that a worker owns it while it is
// queued or processed.
type container struct {
	Container
	// foreign means that the log isn't below the root, or doesn't have a log's name.
	foreign bool
	// dir is the log's directory below the root, file its name there.
	dir  string
	file layout.Name
	// untidy means that files may have to be compressed or removed, or that the runtime may not have reopened its
	// log after a rotation. It is set at first, because an earlier agent may have left such files.
	untidy bool
	// files is the value of MaxFiles when the container was last tidied.
	files int
	// lingering is the newest rotated file if the runtime was still writing to it at the last check; since is when
	// that was first noticed.
	lingering layout.Name
	since     time.Time
	// rotating and tidying are separate, so that a log is still rotated when the disk is too full to compress.
	rotating, tidying tries
	// size is the log's size at the last check, which was at seen; rate is its growth in bytes per second, and next
	// is the time of the next check. watched is the inode whose next write the kernel reports, 0 for none. Only
	// scan uses them.
	size       int64
	seen, next time.Time
	rate       float64
	watched    uint64
}

// tries is the retry state of an operation: the failures since it last succeeded, and when it may be retried.
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

// due reports whether a worker has to process the container.
func (r *Rotator) due(c *container, now time.Time, conf *Config, quiet time.Duration) bool {
	if c.untidy && !now.Before(c.tidying.retry) {
		return true
	}
	if now.Before(c.rotating.retry) || now.Before(c.next) {
		return false
	}
	// This only selects logs for a proper check, so a symbolic link may mislead it.
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

// awaitWrite makes the kernel report the next write to a log that doesn't grow, so that it needn't be checked
// before.
func (r *Rotator) awaitWrite(c *container, stat *unix.Stat_t, now time.Time, conf *Config) {
	if c.watched != stat.Ino {
		if err := r.writes.Watch(c.Path); err != nil {
			return // it is polled
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

// measured records the log's size and schedules the next check: when the log would reach maxSize at its current
// growth, or after the period quiet if it doesn't grow.
func (c *container) measured(now time.Time, size, maxSize int64, quiet time.Duration) {
	grown, since := size-c.size, now.Sub(c.seen)
	if grown < 0 {
		grown = size // a new file
	}
	c.rate = 0
	if since > 0 && !c.seen.IsZero() {
		c.rate = float64(grown) / since.Seconds()
	}
	c.size, c.seen, c.next = size, now, now.Add(quiet)
	switch {
	case size >= maxSize:
		c.next = now // it is rotated now and starts at 0
	case c.rate > 0:
		c.next = now.Add(min(longest, quiet, timeFor(maxSize-size, c.rate)))
	}
}

// pause returns the time until the container's next check.
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

// timeFor returns how long it takes to write this many bytes, at least shortest.
func timeFor(bytes int64, rate float64) time.Duration {
	return max(shortest, time.Duration(min(float64(bytes)/rate, maxPause.Seconds())*float64(time.Second)))
}

// note records the result of an attempt, and returns the number of failures since the last success. interval is the
// delay after the first failure.
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

// logTry records the result of an attempt, and logs repeated failures once.
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
		// The first failure may be due to the end of the container.
		log.Error(err, "A container's log can't be rotated as it should be")
	default:
		log.V(4).Info("Log rotation failed", "err", err.Error(), "failures", failures)
	}
}
