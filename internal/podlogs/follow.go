package podlogs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// settleTime is how long after a container's end the runtime may still be
// writing what it had buffered of the last lines.
const settleTime = 100 * time.Millisecond

// follow copies instance after instance until there is no more to come.
func (c *copier) follow(ctx context.Context, instances Instances) error {
	for attempt := c.req.Attempt; ; {
		f, err := c.reader.open(c.req.Log, attempt)
		if errors.Is(err, fs.ErrNotExist) && c.req.Onward {
			now := instances.Current()
			switch {
			case now.Attempt > attempt:
				attempt++ // it came and went; its log is gone
				continue
			case now.Final:
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-instances.Changed():
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := c.followFile(ctx, f, attempt, instances); err != nil {
			return err
		}
		if !c.req.Onward {
			return nil
		}
		attempt++
	}
}

// followFile copies one instance's log, and the files that take its place when
// it is rotated, until the instance has ended. It closes f.
func (c *copier) followFile(ctx context.Context, f *os.File, attempt int, instances Instances) error {
	defer func() { f.Close() }()
	if err := c.start(f); err != nil {
		return err
	}
	watch := c.reader.watches.add(c.reader.root+"/"+c.req.dir(), c.reader.log)
	defer c.reader.watches.remove(watch)
	var settled <-chan time.Time
	for {
		now := instances.Current()
		over := now.Attempt > attempt || now.Ended || now.Final
		if err := c.drain(ctx, f); err != nil {
			return err
		}
		switch next, err := c.successor(ctx, f, attempt); {
		case err != nil:
			return err
		case next != nil:
			if next != f {
				f.Close()
			}
			f = next
			continue
		}
		if over && settled == nil {
			timer := time.NewTimer(settleTime)
			defer timer.Stop()
			settled = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watch.wake:
		case <-watch.poll():
		case <-instances.Changed():
		case <-settled:
			if err := c.drain(ctx, f); err != nil {
				return err
			}
			return c.finish()
		}
	}
}

// successor returns the file that has taken the place of f in a log rotation,
// having copied the rest of f; f itself, set back to its start, if it was
// truncated instead; nil if nothing happened.
func (c *copier) successor(ctx context.Context, f *os.File, attempt int) (*os.File, error) {
	next, err := c.reader.open(c.req.Log, attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // renamed already, and not yet reopened by the runtime
	}
	if err != nil {
		return nil, err
	}
	same, size, err := compare(f, next)
	if err == nil && !same {
		if err = c.rest(ctx, f); err == nil {
			return next, nil
		}
	}
	next.Close()
	if err != nil {
		return nil, err
	}
	if offset, err := f.Seek(0, io.SeekCurrent); err != nil || offset <= size {
		return nil, err
	}
	c.buf, c.inside = c.buf[:0], false
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// rest copies what is left of a file that was replaced. The runtime makes the
// new file a moment before it lets go of the old one.
func (c *copier) rest(ctx context.Context, f *os.File) error {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if err := c.drain(ctx, f); err != nil {
		return err
	}
	return c.finish()
}

// compare reports whether two open files are one, and the size of the second.
func compare(f, next *os.File) (same bool, size int64, err error) {
	old, err := f.Stat()
	if err != nil {
		return false, 0, err
	}
	current, err := next.Stat()
	if err != nil {
		return false, 0, err
	}
	return os.SameFile(old, current), current.Size(), nil
}
