package podlogs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// copier carries out one Request.
type copier struct {
	reader *Reader
	req    Request
	out    *output
	// buf holds what was read and not yet passed on: an incomplete entry, between reads.
	buf []byte
	// inside is whether buf goes on with an entry whose begin was passed on
	// already, because it is longer than buf; partial is that entry's tag.
	inside  bool
	partial bool
}

// existing copies the instances that have a log.
func (c *copier) existing(ctx context.Context) error {
	attempts, err := c.reader.Attempts(c.req.Log)
	if err != nil {
		return err
	}
	for _, attempt := range attempts {
		if attempt < c.req.Attempt {
			continue
		}
		// One that was removed since it was listed is not missed.
		if err := c.once(ctx, attempt); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// once copies what the log of an instance holds now.
func (c *copier) once(ctx context.Context, attempt int) error {
	f, err := c.reader.open(c.req.Log, attempt)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.start(f); err != nil {
		return err
	}
	if err := c.drain(ctx, f); err != nil {
		return err
	}
	return c.finish()
}

// start goes to where the copying begins in the first file.
func (c *copier) start(f *os.File) error {
	tail := c.req.Tail
	c.req.Tail = -1
	if tail < 0 {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	offset, err := tailOffset(f, info.Size(), tail)
	if err != nil {
		return err
	}
	_, err = f.Seek(offset, io.SeekStart)
	return err
}

// drain passes on every complete entry up to the end of the file.
func (c *copier) drain(ctx context.Context, f io.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		if n > 0 {
			if err := c.entries(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return c.out.flush()
		}
		if err != nil {
			return err
		}
	}
}

// entries passes on the complete entries in buf, and the begin of one that fills all of it.
func (c *copier) entries() error {
	rest := c.buf
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		if err := c.entry(rest[:end+1], true); err != nil {
			return err
		}
		rest = rest[end+1:]
	}
	if len(rest) == cap(c.buf) {
		if err := c.entry(rest, false); err != nil {
			return err
		}
		rest = nil
	}
	c.buf = c.buf[:copy(c.buf[:cap(c.buf)], rest)]
	return nil
}

// finish passes on an entry that never was completed, as when the node lost power.
func (c *copier) finish() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.entry(c.buf, true)
	c.buf = c.buf[:0]
	return err
}

// entry passes on an entry, or a part of one that is not its end.
func (c *copier) entry(b []byte, end bool) error {
	if !c.inside {
		h, ok := parseHeader(b)
		if !ok {
			// Damaged text is shown as it is: it may be what one is looking for.
			h = header{}
		}
		if err := c.out.begin(h); err != nil {
			return err
		}
		b = b[h.size:]
		c.partial = h.partial
	}
	c.inside = !end
	if end && c.partial {
		b = bytes.TrimSuffix(b, []byte{'\n'})
	}
	return c.out.text(b)
}
