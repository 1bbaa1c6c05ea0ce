package rotate

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// tidy completes rotations: it removes leftovers and excess files, checks whether the runtime still writes to the
// renamed file, and compresses all renamed files but the newest.
func (r *Rotator) tidy(ctx context.Context, c *container, conf *Config) (err error) {
	c.untidy, c.files = false, conf.MaxFiles // set at the start, because a rotation may set them again meanwhile
	done := false
	defer func() { c.untidy = c.untidy || err != nil || !done }()
	dir, err := r.open(conf.Root, c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	leftovers := removeLeftovers(dir, c.file.Attempt)
	files, err := rotated(dir, c.file.Attempt)
	if err != nil {
		return errors.Join(leftovers, err)
	}
	excess := removeExcess(dir, files, conf.MaxFiles-1)
	if files, err = rotated(dir, c.file.Attempt); err != nil {
		return errors.Join(leftovers, excess, err)
	}
	followed, err := r.followed(ctx, dir, c, newestPlain(files))
	compressed, compressErr := compressOld(ctx, dir, files, func() { r.overtake(ctx, c) })
	done = followed && compressed
	return errors.Join(leftovers, excess, err, compressErr)
}

// overtake rotates logs while a container is tidied, because they may grow faster than files are compressed: the
// log of that container if it is too large, and the queued logs.
func (r *Rotator) overtake(ctx context.Context, c *container) {
	var stat unix.Stat_t // may be misled by a symbolic link, as in due
	if err := unix.Lstat(c.Path, &stat); err == nil && stat.Size >= r.conf.Load().MaxSize {
		r.tryRotate(ctx, c)
	}
	for o := r.queue.urgent(); o != nil; o = r.queue.urgent() {
		r.tryRotate(ctx, o)
		r.queue.done(o) // it is tidied after the next scan
	}
}

// followed reports whether no process writes to the newest renamed file any more. If a process still writes to it after
// lingerTime, the runtime must have missed the rotation (an agent or a runtime died, or a call failed late), and
// followed repeats the call.
func (r *Rotator) followed(ctx context.Context, dir directory, c *container, newest layout.Name) (bool, error) {
	if newest == (layout.Name{}) {
		return true, nil
	}
	written, err := isWritten(dir, newest)
	if err != nil || !written {
		return true, err
	}
	if c.lingering != newest {
		c.lingering, c.since = newest, time.Now()
	}
	if time.Since(c.since) < lingerTime {
		return false, nil
	}
	c.since = time.Now()
	r.log.V(2).Info("The runtime still writes to a log that was rotated away, so it is asked again to reopen it",
		"pod", logging.Ref(c.Pod), "containerName", c.Name, "path", newest.String())
	return false, r.reopen(ctx, dir, c, newest)
}

// compressOld compresses all rotated files but the newest, and reports whether none is left to compress. The
// failure of one doesn't stop the others.
func compressOld(ctx context.Context, dir directory, files []layout.Name, meanwhile func()) (bool, error) {
	left := true
	var errs []error
	for _, file := range files[:max(0, len(files)-1)] {
		if file.Compressed {
			continue
		}
		written, err := isWritten(dir, file)
		if err == nil && !written {
			err = compress(ctx, dir, file, meanwhile)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // a rotation meanwhile removed it as the oldest
		}
		left = left && err == nil && !written
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}

// removeLeftovers removes files of interrupted compressions: an unfinished compressed file, or the original of a
// finished one.
func removeLeftovers(dir directory, attempt int) error {
	files, err := dir.Files(attempt)
	errs := []error{err}
	for _, file := range files {
		packed := file
		packed.Compressed = true
		if file.Temp || !file.Compressed && slices.Contains(files, packed) {
			errs = append(errs, dir.Remove(file))
		}
	}
	return errors.Join(errs...)
}
