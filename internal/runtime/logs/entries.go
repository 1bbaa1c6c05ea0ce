package logs

import (
	"bytes"
	"errors"
	"io"
)

// entries splits log data into entries and passes their lines on. Its methods may not be called concurrently. Their
// errors are the writer's, or errLimit.
type entries struct {
	out *output
	// buf holds data that wasn't passed on yet: an incomplete entry, between reads.
	buf []byte
	// inside means that the beginning of buf's first entry was passed on already, because the entry is longer than
	// buf; partial is that entry's tag.
	inside  bool
	partial bool
}

// newEntries returns an entries that passes lines on to w. It ignores Follow and Tail of the options. It reads into
// buf, which never grows; the contents of buf are ignored. Every Write to w is a batch of lines that is worth sending
// at once.
func newEntries(w io.Writer, opts Options, buf []byte) *entries {
	return &entries{out: newOutput(w, opts), buf: buf[:0]}
}

// Space is the free part of the buffer, to read into; it is never empty.
func (e *entries) Space() []byte { return e.buf[len(e.buf):cap(e.buf)] }

// Add processes n bytes that were read into Space. It passes on the complete entries, and the beginning of an entry
// that fills the whole buffer.
func (e *entries) Add(n int) error {
	rest := e.buf[:len(e.buf)+n]
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		if err := e.entry(rest[:end+1], true); err != nil {
			return err
		}
		rest = rest[end+1:]
	}
	if len(rest) == cap(e.buf) {
		if err := e.entry(rest, false); err != nil {
			return err
		}
		rest = nil
	}
	e.buf = e.buf[:copy(e.buf[:cap(e.buf)], rest)]
	return nil
}

// Flush writes the lines that were passed on, except unfinished ones that are held.
func (e *entries) Flush() error { return e.out.flush() }

// Prompt also writes the beginnings of unfinished lines, because they may be prompts. It doesn't write lines that a
// rotation split: their rest is in the next file, or never comes.
func (e *entries) Prompt() error { return e.out.prompt() }

// Finish passes on an incomplete entry, such as after a power failure. It is called when no more data of the
// instance will be read.
func (e *entries) Finish() error {
	var err error
	if len(e.buf) > 0 {
		err = e.entry(e.buf, true)
	}
	e.buf, e.inside = e.buf[:0], false
	return err
}

// NextInstance ends the unfinished lines of the previous instance.
func (e *entries) NextInstance() error { return e.out.endLines() }

// Close writes all remaining data.
func (e *entries) Close() error { return errors.Join(e.out.spill(), e.out.flush()) }

// NextFile continues with another file. An incomplete entry ends with the current one.
func (e *entries) NextFile() error {
	cut := len(e.buf) > 0 || e.inside
	if err := e.Finish(); err != nil {
		return err
	}
	if cut && !e.partial {
		return e.out.endLines()
	}
	e.out.nextFile()
	return nil
}

// Restart discards an incomplete entry: its file was truncated.
func (e *entries) Restart() { e.buf, e.inside = e.buf[:0], false }

// entry passes on an entry, or a piece of one if end is false.
func (e *entries) entry(b []byte, end bool) error {
	if !e.inside {
		h, ok := parseHeader(b)
		if !ok {
			h = header{} // corrupt entry
		}
		e.out.startEntry(h, b[:h.stamp])
		b = b[h.size:]
		e.partial = h.partial
	}
	e.inside = !end
	if end && e.partial && len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return e.out.text(b)
}
