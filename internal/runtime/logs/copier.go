package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

const (
	// letGoTime limits how long a reader expects the runtime to keep writing to a rotated file; then it continues
	// with the next file. The runtime releases the old file in less than a millisecond unless the disk is slow.
	letGoTime = time.Second
	// followLetGoTime is the same limit for followers. It is longer because a follower misses lines that the
	// runtime writes to the old file afterwards. If the call to reopen the log failed, the rotator has repeated the
	// call by then.
	followLetGoTime = 30 * time.Second
	// guessTime is how long to wait before a file is assumed to have no writers, if the kernel can't report that.
	guessTime = 100 * time.Millisecond
)

// copier executes one Request.
type copier struct {
	reader *Reader
	req    Request
	lines  *entries
	// letGo is letGoTime, or followLetGoTime if the request follows the log.
	letGo time.Duration
}

func newCopier(r *Reader, req Request, w io.Writer) *copier {
	c := &copier{reader: r, req: req, letGo: letGoTime}
	if req.Follow {
		c.letGo = followLetGoTime
	}
	c.lines = newEntries(w, req.Options, make([]byte, bufferSize))
	return c
}

// existing copies the lines that exist now.
func (c *copier) existing(ctx context.Context) error {
	if !c.req.Onward && !c.req.OrLater {
		return c.once(ctx, c.req.Attempt)
	}
	attempts, err := c.reader.Attempts(c.req.Log)
	if err != nil {
		return err
	}
	for _, attempt := range attempts {
		if attempt < c.req.Attempt {
			continue
		}
		// An instance whose log was removed after it was listed is skipped.
		err := c.once(ctx, attempt)
		if err == nil && !c.req.Onward {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if c.req.Onward {
		return nil
	}
	return missing(c.req.Log, c.req.Attempt, 0)
}

// once copies the current log of one instance.
func (c *copier) once(ctx context.Context, attempt int) error {
	parts, err := c.open(ctx, attempt)
	if err != nil {
		return err
	}
	defer func() { closeAll(parts) }()
	for ; len(parts) > 1; parts = parts[1:] {
		if err := c.whole(ctx, parts[0]); err != nil {
			return err
		}
		parts[0].close()
	}
	if len(parts) == 1 {
		if err := c.drain(ctx, parts[0]); err != nil {
			return err
		}
	}
	return c.lines.Finish()
}

// open opens an instance's log and seeks to the first line to copy.
func (c *copier) open(ctx context.Context, attempt int) ([]*part, error) {
	parts, err := c.reader.openParts(c.req.Log, attempt, "")
	if err != nil {
		return nil, err
	}
	if err := c.lines.NextInstance(); err != nil { // of the previous instance
		closeAll(parts)
		return nil, err
	}
	if c.req.Begun != nil {
		c.req.Begun(attempt)
	}
	tail := c.req.Tail
	c.req.Tail = -1
	rest, err := c.skip(ctx, parts, tail)
	if err != nil {
		closeAll(parts)
		return nil, err
	}
	closeAll(parts[:len(parts)-len(rest)])
	return rest, nil
}

// skip returns the parts to read; the first of them is positioned at its first line to copy.
func (c *copier) skip(ctx context.Context, parts []*part, tail int64) ([]*part, error) {
	for c.tooOld(parts) {
		parts = parts[1:]
	}
	if tail < 0 {
		return parts, nil
	}
	for i := len(parts) - 1; i >= 0; i-- {
		lines, found, err := parts[i].seekTail(ctx, tail)
		if err != nil {
			return nil, err
		}
		if found {
			return parts[i:], nil
		}
		tail -= lines
	}
	return parts, nil
}

// tooOld reports whether the first part has only lines from before Since. A follower needs the last part in any
// case.
func (c *copier) tooOld(parts []*part) bool {
	if c.req.Since.IsZero() || len(parts) == 0 || c.req.Follow && len(parts) == 1 {
		return false
	}
	return parts[0].writtenBefore(c.req.Since)
}

// whole copies a part that isn't the last one to its end.
func (c *copier) whole(ctx context.Context, p *part) error {
	if err := c.drain(ctx, p); err != nil {
		return err
	}
	if !p.name.Compressed {
		if err := c.released(ctx, p); err != nil {
			return err
		}
	}
	return c.lines.NextFile()
}

// released copies the lines that the runtime still writes to a rotated part: ReopenContainerLog returns a moment before
// the runtime releases the old file. It copies until no process has the file open for writing, or letGo has passed. If
// the kernel can't report writers, it copies for guessTime.
func (c *copier) released(ctx context.Context, p *part) error {
	deadline := time.Now().Add(c.letGo)
	for pause := time.Millisecond; ; pause = min(2*pause, guessTime) {
		writing, err := filewatch.HasWriter(p.file)
		switch {
		case errors.Is(err, filewatch.ErrUnknown):
			if !wake.Sleep(ctx, guessTime) {
				return ctx.Err()
			}
			return c.drain(ctx, p)
		case err != nil:
			return err
		case !writing || time.Now().After(deadline):
			return c.drain(ctx, p)
		}
		if err := c.drain(ctx, p); err != nil {
			return err
		}
		if !wake.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// drain passes on every complete entry up to the current end of the part.
func (c *copier) drain(ctx context.Context, p *part) error {
	if p.text == nil {
		if err := p.rewind(); err != nil {
			return c.unreadable(p, err)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := p.text.Read(c.lines.Space())
		if n > 0 {
			if err := c.lines.Add(n); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return c.lines.Flush()
		}
		if err != nil {
			return c.unreadable(p, err)
		}
	}
}

// unreadable handles a read error: the rest of a corrupt compressed part is skipped.
func (c *copier) unreadable(p *part, err error) error {
	if !p.name.Compressed {
		return err
	}
	c.reader.log.V(2).Info("The rest of a compressed log is left out", "path", p.file.Name(), "err", err.Error())
	return c.lines.Flush()
}
