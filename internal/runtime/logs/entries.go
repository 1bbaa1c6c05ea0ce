package logs

import (
	"bytes"
	"errors"
	"io"
)

// entries cuts what is read of logs into entries and passes their lines on. Its
// methods may not be called concurrently. Their errors are the writer's, or errLimit.
type entries struct {
	out *output
	// buf holds what was read and not yet passed on: an incomplete entry, between reads.
	buf []byte
	// inside is whether buf goes on with an entry whose begin was passed on
	// already, because it is longer than buf; partial is that entry's tag.
	inside  bool
	partial bool
}

// newEntries passes lines on to w. It reads into buf, which it never grows; what is
// in it already is not looked at. Every Write to w is a batch of lines that is worth sending at once.
func newEntries(w io.Writer, opts lineOptions, buf []byte) *entries {
	return &entries{out: newOutput(w, opts), buf: buf[:0]}
}

// Space is where to read to; it is never empty.
func (e *entries) Space() []byte { return e.buf[len(e.buf):cap(e.buf)] }

// Add passes on the complete entries after n bytes were read into Space, and the
// begin of one that fills all of the buffer.
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

// Flush writes what was passed on: all but what is held of unfinished lines.
func (e *entries) Flush() error { return e.out.flush() }

// Prompt writes unfinished lines too, as far as they go, for they may be prompts. The
// rest of one that a rotation split is there at once or never.
func (e *entries) Prompt() error { return e.out.prompt() }

// Finish passes on an entry that never was completed, as when the node lost power: no
// more of the instance will be read.
func (e *entries) Finish() error {
	var err error
	if len(e.buf) > 0 {
		err = e.entry(e.buf, true)
	}
	e.buf, e.inside = e.buf[:0], false
	return err
}

// NextInstance ends what the instance before left unfinished.
func (e *entries) NextInstance() error { return e.out.endLines() }

// Close writes all there is.
func (e *entries) Close() error { return errors.Join(e.out.spill(), e.out.flush()) }

// NextFile goes on with another file. An entry that was not completed in this one ends.
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

// Restart forgets what was read of an entry: its file was truncated.
func (e *entries) Restart() { e.buf, e.inside = e.buf[:0], false }

// entry passes on an entry, or a part of one that is not its end.
func (e *entries) entry(b []byte, end bool) error {
	if !e.inside {
		h, ok := parseHeader(b)
		if !ok {
			h = header{} // damage
		}
		e.out.begin(h, b[:h.stamp])
		b = b[h.size:]
		e.partial = h.partial
	}
	e.inside = !end
	if end && e.partial && len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return e.out.text(b)
}
