package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// Last returns the last count lines that an instance has written to either stream, and of those at most the last
// size bytes. It reads only the last 32 KiB of the log, and only uncompressed files. The error is fs.ErrNotExist
// (wrapped) if the instance has no log.
func (r *Reader) Last(l Log, attempt, count, size int) ([]byte, error) {
	parts, err := r.openParts(l, attempt, "")
	if err != nil {
		return nil, err
	}
	defer closeAll(parts)
	window, err := lastOf(parts)
	if err != nil {
		return nil, err
	}
	offset, _, found, err := tailOffset(context.Background(), bytes.NewReader(window), int64(len(window)), int64(count))
	if err != nil {
		return nil, err
	}
	if !found {
		offset = 0
	}
	var text bytes.Buffer
	in := newEntries(&text, Options{}, window[offset:])
	if err := errors.Join(in.Add(len(window)-int(offset)), in.Finish(), in.Close()); err != nil {
		return nil, err
	}
	return text.Bytes()[max(0, text.Len()-size):], nil
}

// lastOf returns the last entries of the parts, about bufferSize bytes.
func lastOf(parts []*part) ([]byte, error) {
	var window []byte
	for i := len(parts) - 1; i >= 0 && len(window) < bufferSize && !parts[i].name.Compressed; i-- {
		b, err := parts[i].end(bufferSize - len(window))
		if err != nil {
			return nil, err
		}
		if len(b) > 0 && b[len(b)-1] != '\n' && len(window) > 0 {
			b = append(b, '\n')
		}
		window = append(b, window...)
	}
	return window, nil
}

// end returns the last entries of a part, at most size bytes.
func (p *part) end(size int) ([]byte, error) {
	info, err := p.file.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-int64(size))
	b := make([]byte, info.Size()-from)
	n, err := p.file.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if from > 0 {
		return pastHeader(b[:n]), nil
	}
	return b[:n], nil
}

// pastHeader skips a possibly incomplete header at the start of b: b may begin in the middle of an entry, and
// parseHeader doesn't recognize the rest of a header.
func pastHeader(b []byte) []byte {
	head := b[:min(len(b), maxHeader)]
	if end := bytes.IndexByte(head, '\n'); end >= 0 {
		return b[end+1:]
	}
	return b[len(head):]
}
