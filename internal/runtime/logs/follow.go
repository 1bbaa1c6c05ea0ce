package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// lastWrites is how long after a container's end the runtime may still be
// writing what it had buffered of the last lines.
const lastWrites = 100 * time.Millisecond

// follow copies instance after instance until there is no more to come.
func (c *copier) follow(ctx context.Context, instances Instances) error {
	for attempt := c.req.Attempt; ; {
		parts, err := c.begin(ctx, attempt)
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

// await waits, where an instance has no log, until there may be one to follow. It
// returns which; a negative number if none is to come; gone if that is an error.
func (c *copier) await(ctx context.Context, attempt int, instances Instances, gone error) (int, error) {
	now, later := instances.Current(), c.req.Onward || c.req.OrLater
	switch {
	case now.Attempt > attempt && later:
		return attempt + 1, nil // it came and went; its log is gone
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
	// parts are those that are open and not yet copied to their end; the last of them
	// is the newest there was when the directory was last looked at.
	parts []*part
}

func (f *pursuit) run(ctx context.Context) error {
	defer func() { closeAll(f.parts) }()
	watch := f.reader.watches.add(f.reader.root+"/"+f.req.dir(), f.reader.log)
	defer f.reader.watches.remove(watch)
	var complete <-chan time.Time
	for {
		now := f.instances.Current()
		over := now.Attempt > f.attempt || now.Ended || now.Final
		if err := f.catchUp(ctx); err != nil {
			return err
		}
		if over && complete == nil {
			timer := time.NewTimer(lastWrites)
			defer timer.Stop()
			complete = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watch.wake:
		case <-watch.poll():
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

// catchUp copies all there is now. One part is left then.
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

// successors opens what has taken the place of the last part in a log rotation:
// nothing if there was none, or if the runtime hasn't made the new file yet.
func (f *pursuit) successors() ([]*part, error) {
	p := f.parts[0]
	now, removed, err := layout.NameOf(p.file)
	if err != nil {
		return nil, err
	}
	if now == layout.Current(f.attempt).String() && !removed {
		return nil, f.lines.Prompt()
	}
	// By now it has the name of its rotation, which tells what comes after it. If somebody
	// else moved it, all that is newer than the parts before it does.
	if name, ok := layout.ParseName(now); ok && name.Stamp > p.after {
		p.after = name.Stamp
	}
	more, err := f.reader.openParts(f.req.Log, f.attempt, p.after)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && slices.ContainsFunc(more, p.same) {
		closeAll(more)
		return nil, nil // renamed back meanwhile, because the runtime made no new file
	}
	return more, err
}

// truncated reports that the file is to be read again, because it is shorter than what was
// read of it: some rotators copy a file and truncate it.
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
