package logs

import (
	"errors"
	"io"
	"time"
)

// errLimit reports that LimitBytes were written.
var errLimit = errors.New("byte limit reached")

// outputSize is the size of one write in bytes.
const outputSize = 64 << 10

// Stream selects the container's output streams.
type Stream string

// The values are those of v1.PodLogOptions.Stream.
const (
	Both   Stream = "All"
	Stdout Stream = "Stdout"
	Stderr Stream = "Stderr"
)

// maxHeld is how many bytes of an unfinished line are held until the line ends. Lines that are longer may be
// interleaved with lines of the other stream.
const maxHeld = 64 << 10

// output turns log entries into the requested lines. It ignores Follow and Tail of its options, which the copier
// implements.
type output struct {
	w    io.Writer
	opts Options
	left int64
	buf  []byte
	// While a full buffer is written in the background, the other one is filled. The result of the write arrives on
	// writing, which is nil if there is no write.
	other   []byte
	writing chan error
	// err is the error of a failed write; nothing is written after it.
	err error
	// lines are the unfinished lines of stdout and stderr.
	lines [2]halfLine
	// line, skip and stamp belong to the current entry; old means that the last entry with a timestamp is older
	// than Since.
	line  *halfLine
	skip  bool
	old   bool
	stamp []byte
}

// halfLine is a line that is assembled from several entries.
type halfLine struct {
	// open means that the line isn't finished.
	open bool
	// held is the beginning of the line, unless it was written already.
	held []byte
	// written means that the beginning of the line was written.
	written bool
	// split means that the line continues in the next file.
	split bool
}

func newOutput(w io.Writer, opts Options) *output {
	return &output{w: w, opts: opts, left: opts.LimitBytes, buf: make([]byte, 0, outputSize)}
}

// startEntry starts an entry with the timestamp stamp.
func (o *output) startEntry(h header, stamp []byte) {
	o.line, o.stamp = &o.lines[0], o.stamp[:0]
	if h.stderr {
		o.line = &o.lines[1]
	}
	o.skip = o.opts.Stream == Stdout && h.stderr || o.opts.Stream == Stderr && !h.stderr
	if o.opts.Since.IsZero() && (o.skip || !o.opts.Timestamps) {
		return
	}
	if o.opts.Since.IsZero() {
		if !o.line.open {
			o.stamp = appendStamp(o.stamp, stamp)
		}
		return
	}
	// An entry without a valid timestamp belongs to the previous entry.
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err == nil {
		o.old = at.Before(o.opts.Since)
	}
	o.skip = o.skip || o.old
	if !o.skip && o.opts.Timestamps && !o.line.open {
		o.stamp = appendStamp(o.stamp, stamp)
	}
}

// text writes a piece of the entry's text.
func (o *output) text(b []byte) error {
	if o.skip || len(b) == 0 && len(o.stamp) == 0 {
		return nil
	}
	l := o.line
	l.open = len(b) == 0 || b[len(b)-1] != '\n'
	if l.open && !l.written && len(l.held)+len(b) <= maxHeld {
		l.held = append(append(l.held, o.stamp...), b...)
		o.stamp = o.stamp[:0]
		return nil
	}
	if err := o.release(l); err != nil {
		return err
	}
	if len(o.stamp) > 0 {
		if err := o.write(o.stamp); err != nil {
			return err
		}
		o.stamp = o.stamp[:0]
	}
	l.written, l.split = l.open, l.split && l.open
	return o.write(b)
}

// release writes the held beginning of a line.
func (o *output) release(l *halfLine) error {
	if len(l.held) == 0 {
		return nil
	}
	l.written = true
	err := o.write(l.held)
	l.held = l.held[:0]
	return err
}

// spill writes all held beginnings of lines.
func (o *output) spill() error {
	if err := o.release(&o.lines[0]); err != nil {
		return err
	}
	return o.release(&o.lines[1])
}

// prompt writes and flushes the beginnings of unfinished lines, because they may be prompts. It doesn't write lines
// that a rotation split: their rest is in the next file, or never comes.
func (o *output) prompt() error {
	for i := range o.lines {
		if l := &o.lines[i]; !l.split {
			if err := o.release(l); err != nil {
				return err
			}
		}
	}
	return o.flush()
}

// nextFile marks unfinished lines as continuing in another file.
func (o *output) nextFile() {
	for i := range o.lines {
		o.lines[i].split = o.lines[i].open
	}
}

// endLines ends unfinished lines that won't be continued.
func (o *output) endLines() error {
	for i := range o.lines {
		l := &o.lines[i]
		if !l.open {
			continue
		}
		if err := o.release(l); err != nil {
			return err
		}
		l.open, l.written, l.split = false, false, false
		if err := o.write([]byte{'\n'}); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) write(b []byte) error {
	limited := o.opts.LimitBytes > 0 && int64(len(b)) >= o.left
	if limited {
		b = b[:o.left]
	}
	o.left -= int64(len(b))
	if len(o.buf)+len(b) > cap(o.buf) {
		if err := o.handOver(); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, b...)
	if limited {
		return errLimit
	}
	return nil
}

// handOver starts to write the full buffer in the background, while more is read into the other buffer; flush waits
// for the write.
func (o *output) handOver() error {
	if err := o.settle(); err != nil {
		return err
	}
	if o.other == nil {
		o.other = make([]byte, 0, cap(o.buf))
	}
	full := o.buf
	o.buf, o.other, o.writing = o.other[:0], full, make(chan error, 1)
	go func() {
		_, err := o.w.Write(full)
		o.writing <- err
	}()
	return nil
}

// settle waits for the write in the background.
func (o *output) settle() error {
	if o.writing != nil {
		o.err, o.writing = <-o.writing, nil
	}
	return o.err
}

// flush writes the buffer: everything except held beginnings of lines.
func (o *output) flush() error {
	if err := o.settle(); err != nil || len(o.buf) == 0 {
		return err
	}
	_, o.err = o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return o.err
}
