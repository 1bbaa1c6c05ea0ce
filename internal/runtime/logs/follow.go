package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

const (
	// lastWrites is how long after a container's end the runtime may still be writing buffered lines.
	lastWrites = 100 * time.Millisecond
	// pollPeriod is the polling interval of a log that can't be watched.
	pollPeriod = 500 * time.Millisecond
)

// follow copies the logs of successive instances until the last instance has ended.
func (c *copier) follow(ctx context.Context, instances Instances) error {
	for attempt := c.req.Attempt; ; {
		parts, err := c.open(ctx, attempt)
		if errors.Is(err, fs.ErrNotExist) {
			next, err := c.await(ctx, attempt, instances, err)
			if err != nil || next < 0 {
				return err
			}
			attempt = next
			continue
		}
		if err != nil {
			return err
		}
		f := &pursuit{copier: c, parts: parts, attempt: attempt, instances: instances}
		if err := f.run(ctx); err != nil || !c.req.Onward {
			return err
		}
		attempt++
	}
}

// await handles an instance without a log, by the state of the container. It returns the attempt of the instance to
// try next: the next one if this instance's log was removed, or the same one after waiting for a change. It returns
// a negative number if no further instance will come. If the request requires the missing log, it returns the error
// gone.
func (c *copier) await(ctx context.Context, attempt int, instances Instances, gone error) (int, error) {
	now, later := instances.Current(), c.req.Onward || c.req.OrLater
	switch {
	case now.Attempt > attempt && later:
		return attempt + 1, nil // the instance has ended and its log was removed
	case now.Final && c.req.Onward:
		return -1, nil
	case now.Final, !later && (now.Attempt > attempt || now.Attempt == attempt && now.Ended):
		return 0, gone
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-instances.Changed():
		return attempt, nil
	}
}

// pursuit copies one instance's log until the instance has ended.
type pursuit struct {
	*copier
	attempt   int
	instances Instances
	// parts are the open files that aren't copied to their end yet; the last of them was the newest when the
	// directory was last listed.
	parts []*part
}

func (f *pursuit) run(ctx context.Context) error {
	defer func() { closeAll(f.parts) }()
	dir := f.reader.root + "/" + f.req.dir()
	watcher := f.reader.files.Open(func(t filewatch.Trail) {
		if _, err := os.Stat(dir); err == nil {
			t.Directory(dir)
		}
	})
	defer watcher.Close()
	unwatched := watcher.Arm()
	var complete <-chan time.Time
	for {
		now := f.instances.Current()
		over := now.Attempt > f.attempt || now.Ended || now.Final
		if err := f.catchUp(ctx); err != nil {
			return err
		}
		if over && complete == nil {
			complete = time.After(lastWrites)
		}
		var poll <-chan time.Time
		if unwatched != nil {
			poll = time.After(pollPeriod)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-watcher.Events():
			if e.Op == filewatch.Rescan {
				unwatched = watcher.Arm()
			}
		case <-poll:
		case <-f.instances.Changed():
		case <-complete:
			f.letGo = letGoTime
			if err := f.released(ctx, f.parts[0]); err != nil {
				return err
			}
			if err := f.catchUp(ctx); err != nil {
				return err
			}
			return f.lines.Finish()
		}
	}
}

// catchUp copies everything that exists now. Then only the newest part is left in f.parts.
func (f *pursuit) catchUp(ctx context.Context) error {
	for {
		for ; len(f.parts) > 1; f.parts = f.parts[1:] {
			if err := f.whole(ctx, f.parts[0]); err != nil {
				return err
			}
			f.parts[0].close()
		}
		if err := f.drain(ctx, f.parts[0]); err != nil {
			return err
		}
		more, err := f.successors()
		if err != nil {
			return err
		}
		f.parts = append(f.parts, more...)
		if len(more) > 0 {
			continue
		}
		if again, err := f.truncated(); err != nil || !again {
			return err
		}
	}
}

// successors opens the files that replaced the last part in a log rotation: none if there was no rotation, or if
// the runtime hasn't created the new file yet.
func (f *pursuit) successors() ([]*part, error) {
	p := f.parts[0]
	now, removed, err := layout.NameOf(p.file)
	if err != nil {
		return nil, err
	}
	if now == layout.Current(f.attempt).String() && !removed {
		return nil, f.lines.Prompt()
	}
	// A rotation renamed the file, so the files that follow it have later timestamps than its new name. If another
	// process renamed the file, all files that are newer than the previous parts follow.
	if name, ok := layout.ParseName(now); ok && name.Stamp > p.after {
		p.after = name.Stamp
	}
	more, err := f.reader.openParts(f.req.Log, f.attempt, p.after)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && slices.ContainsFunc(more, p.same) {
		closeAll(more)
		return nil, nil // renamed back meanwhile, because the runtime created no new file
	}
	return more, err
}

// truncated reports whether the file has to be read from its start because it is shorter than the data read: some
// rotators copy a file and truncate it.
func (f *pursuit) truncated() (bool, error) {
	p := f.parts[0]
	if p.name.Compressed {
		return false, nil
	}
	info, err := p.file.Stat()
	if err != nil {
		return false, err
	}
	offset, err := p.file.Seek(0, io.SeekCurrent)
	if err != nil || offset <= info.Size() {
		return false, err
	}
	f.lines.Restart()
	return true, p.rewind()
}
