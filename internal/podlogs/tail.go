package podlogs

import (
	"bytes"
	"io"
)

// tailOffset returns where the last n lines of a log begin. Entries that the
// runtime split a long line into count as one line.
func tailOffset(f io.ReaderAt, size, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	var (
		block = make([]byte, min(bufferSize, size))
		head  [maxHeader]byte
		lines int64
		// next is where the entry after the one being looked at begins.
		next = size
	)
	for high := size; high > 0; {
		low := max(0, high-int64(len(block)))
		b := block[:high-low]
		if _, err := f.ReadAt(b, low); err != nil {
			return 0, err
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
				return 0, err
			}
			if ends {
				if lines++; lines > n {
					return next, nil
				}
			}
			next = begin
		}
		high = low
	}
	ends, err := endsLine(f, head[:], 0, next, size)
	if err != nil {
		return 0, err
	}
	if ends && lines >= n {
		return next, nil
	}
	return 0, nil
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
	h, ok := parseHeader(head)
	return !ok || !h.partial, nil
}
