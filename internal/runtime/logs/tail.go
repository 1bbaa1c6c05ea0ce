package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// seekTail goes to where the last n lines of the part begin, and reports that it
// has found the place; or how many lines the part has, if there are no more than
// n: then the first of them may go on with a line that begins in the part before.
// Entries that the runtime split a long line into count as one line.
func (p *part) seekTail(ctx context.Context, n int64) (count int64, found bool, err error) {
	if p.name.Compressed {
		return p.unpackTail(ctx, n)
	}
	info, err := p.file.Stat()
	if err != nil {
		return 0, false, err
	}
	offset, count, found, err := tailOffset(ctx, p.file, info.Size(), n)
	if errors.Is(err, io.EOF) {
		offset, found, err = 0, true, nil // truncated meanwhile: all that is there now is new
	}
	if err != nil || !found {
		return count, false, err
	}
	p.text = p.file
	_, err = p.file.Seek(offset, io.SeekStart)
	return 0, true, err
}

// unpackTail is seekTail for a compressed part. That has no way back from its end: it
// is read up to there to count, and again to go to the place. What can't be unpacked ends it.
func (p *part) unpackTail(ctx context.Context, n int64) (count int64, found bool, err error) {
	count, _ = p.passLines(ctx, -1)
	if err := ctx.Err(); err != nil || count <= n {
		return count, false, err
	}
	_, err = p.passLines(ctx, count-n)
	return 0, true, err
}

// passLines reads a compressed part from its begin to the end of that many lines; to the
// end of all if negative. It returns how many there were.
func (p *part) passLines(ctx context.Context, n int64) (count int64, err error) {
	text, err := p.unpack()
	if err != nil {
		return 0, err
	}
	for begun, counts := false, true; count != n; {
		if err := ctx.Err(); err != nil {
			return count, err
		}
		piece, err := text.ReadSlice('\n')
		if !begun {
			counts = entryEndsLine(piece)
		}
		begun = errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err == nil && counts:
			count++
		case err != nil && !begun:
			return count, err
		}
	}
	p.text = text
	return count, nil
}

// tailOffset returns where the last n lines of a text begin; found is false if it has
// no more than that: count then says how many.
func tailOffset(ctx context.Context, f io.ReaderAt, size, n int64) (offset, count int64, found bool, err error) {
	var (
		block = make([]byte, min(bufferSize, size))
		head  [maxHeader]byte
		// next is where the entry after the one being looked at begins.
		next = size
	)
	for high := size; high > 0; {
		if err := ctx.Err(); err != nil {
			return 0, 0, false, err
		}
		low := max(0, high-int64(len(block)))
		b := block[:high-low]
		if _, err := f.ReadAt(b, low); err != nil {
			return 0, 0, false, err
		}
		for len(b) > 0 {
			newline := bytes.LastIndexByte(b, '\n')
			if newline < 0 {
				break
			}
			begin := low + int64(newline) + 1
			b = b[:newline]
			if begin == size {
				continue // the newline that ends the file
			}
			ends, err := endsLine(f, head[:], begin, next, size)
			if err != nil {
				return 0, 0, false, err
			}
			if ends {
				if count++; count > n {
					return next, count, true, nil
				}
			}
			next = begin
		}
		high = low
	}
	ends, err := endsLine(f, head[:], 0, next, size)
	if err != nil {
		return 0, 0, false, err
	}
	if ends {
		count++
	}
	return next, count, count > n, nil
}

// endsLine reports whether the entry from begin up to next is the last one of
// a line. One that is still being written, at the end of the file, isn't one yet.
func endsLine(f io.ReaderAt, head []byte, begin, next, size int64) (bool, error) {
	if begin == next {
		return false, nil
	}
	if next == size {
		if _, err := f.ReadAt(head[:1], size-1); err != nil {
			return false, err
		}
		if head[0] != '\n' {
			return false, nil
		}
	}
	head = head[:min(int64(len(head)), next-begin)]
	if _, err := f.ReadAt(head, begin); err != nil {
		return false, err
	}
	return entryEndsLine(head), nil
}
