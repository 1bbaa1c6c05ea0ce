package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// seekTail seeks to the beginning of the last n lines of the part, and reports whether the part has more than n
// lines. If not, it returns the number of its lines instead; the first of them may be the rest of a line of the
// previous part. A long line that the runtime split into several entries counts as one line.
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
		offset, found, err = 0, true, nil // truncated meanwhile: all of its current content is new
	}
	if err != nil || !found {
		return count, false, err
	}
	p.text = p.file
	_, err = p.file.Seek(offset, io.SeekStart)
	return 0, true, err
}

// unpackTail is seekTail for a compressed part. That can't be read backwards: it is read once to count the lines,
// and again to seek. A decompression error ends the part.
func (p *part) unpackTail(ctx context.Context, n int64) (count int64, found bool, err error) {
	count, _ = p.passLines(ctx, -1)
	if err := ctx.Err(); err != nil || count <= n {
		return count, false, err
	}
	_, err = p.passLines(ctx, count-n)
	return 0, true, err
}

// passLines reads a compressed part from its beginning to the end of line n, or to its end if n is negative. It
// returns how many lines it read.
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

// tailOffset returns the offset of the last n lines of a log; if it has at most n lines, found is false and count
// is their number.
func tailOffset(ctx context.Context, f io.ReaderAt, size, n int64) (offset, count int64, found bool, err error) {
	var (
		block = make([]byte, min(bufferSize, size))
		head  [maxHeader]byte
		// next is the offset of the entry after the current one.
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

// endsLine reports whether the entry between begin and next is the last one of a line. An incomplete entry at the
// end of the file isn't.
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
