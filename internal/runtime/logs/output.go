package logs

import (
	"errors"
	"io"
	"time"
)

// errLimit reports that LimitBytes were written.
var errLimit = errors.New("byte limit reached")

// outputSize is how much is written at once.
const outputSize = 64 << 10

// Stream says which of a container's outputs to read.
type Stream string

// The values are those of v1.PodLogOptions.Stream.
const (
	Both   Stream = "All"
	Stdout Stream = "Stdout"
	Stderr Stream = "Stderr"
)

// lineOptions say which lines to pass on, and how. They mean what their namesakes in
// v1.PodLogOptions mean.
type lineOptions struct {
	// Since leaves out older entries, unless zero.
	Since time.Time
	// Timestamps puts an RFC 3339 time of fixed width before each line.
	Timestamps bool
	// LimitBytes ends the output after so many bytes; 0 for no limit.
	LimitBytes int64
	// Stream is Both if empty.
	Stream Stream
}

// maxHeld is how much of a line is held until its end comes. Of longer ones, what the
// other stream writes meanwhile comes out in the midst.
const maxHeld = 64 << 10

// output turns log entries into the lines that were asked for.
type output struct {
	w    io.Writer
	opts lineOptions
	left int64
	buf  []byte
	// While one full buffer is written, the other one is filled: writing is told what became of it, and is nil when
	// nothing is written.
	other   []byte
	writing chan error
	// err is why nothing can be written any more.
	err error
	// lines are what is begun and not ended of stdout and stderr.
	lines [2]halfLine
	// line, skip and stamp are those of the entry that is being written; old is whether
	// the last one that had a time was older than was asked for.
	line  *halfLine
	skip  bool
	old   bool
	stamp []byte
}

// halfLine is a line that is put together.
type halfLine struct {
	// open is whether the line is begun but not ended.
	open bool
	// held is its begin, unless that is written already.
	held []byte
	// written is whether a begin of it is.
	written bool
	// split is whether its rest comes in the next file.
	split bool
}

func newOutput(w io.Writer, opts lineOptions) *output {
	return &output{w: w, opts: opts, left: opts.LimitBytes, buf: make([]byte, 0, outputSize)}
}

// begin starts an entry that was written at stamp.
func (o *output) begin(h header, stamp []byte) {
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
	// What has no time that can be read belongs to the entry before it.
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

// release writes what is held of a line.
func (o *output) release(l *halfLine) error {
	if len(l.held) == 0 {
		return nil
	}
	l.written = true
	err := o.write(l.held)
	l.held = l.held[:0]
	return err
}

// spill writes what is held.
func (o *output) spill() error {
	if err := o.release(&o.lines[0]); err != nil {
		return err
	}
	return o.release(&o.lines[1])
}

// prompt writes and flushes unfinished lines as far as they go, for they may be
// prompts. The rest of one that a rotation split is there at once or never.
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

// nextFile notes that what is unfinished goes on in another file.
func (o *output) nextFile() {
	for i := range o.lines {
		o.lines[i].split = o.lines[i].open
	}
}

// endLines ends what is begun of lines that nothing comes of any more.
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

// handOver has what was gathered written while more is read: flush waits for it.
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

// settle waits until nothing is written.
func (o *output) settle() error {
	if o.writing != nil {
		o.err, o.writing = <-o.writing, nil
	}
	return o.err
}

// flush writes what was gathered: all but what is held.
func (o *output) flush() error {
	if err := o.settle(); err != nil || len(o.buf) == 0 {
		return err
	}
	_, o.err = o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return o.err
}
