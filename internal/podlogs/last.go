package podlogs

import (
	"bytes"
	"errors"
	"io"
)

// Last returns the last lines that an instance has written, to either stream, and
// of those no more than the last size bytes. However large the log has grown, only
// the last 32 KiB of its newest file are looked at. The error is fs.ErrNotExist
// (wrapped) for an instance that has no log.
func (r *Reader) Last(l Log, attempt, lines, size int) ([]byte, error) {
	f, err := r.open(l, attempt)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-bufferSize)
	window := make([]byte, info.Size()-from)
	n, err := f.ReadAt(window, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	window = window[:n]
	if from > 0 {
		window = pastHeader(window)
	}
	offset, err := tailOffset(bytes.NewReader(window), int64(len(window)), int64(lines))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	c := &copier{reader: r, out: newOutput(&text, Options{}), buf: window[offset:]}
	if err := errors.Join(c.entries(), c.finish(), c.out.flush()); err != nil {
		return nil, err
	}
	return text.Bytes()[max(0, text.Len()-size):], nil
}

// pastHeader leaves out what may be the header of an entry that b begins within:
// the rest of a header isn't known for one.
func pastHeader(b []byte) []byte {
	head := b[:min(len(b), maxHeader)]
	if end := bytes.IndexByte(head, '\n'); end >= 0 {
		return b[end+1:]
	}
	return b[len(head):]
}
