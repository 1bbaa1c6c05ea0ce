package podlogs

import (
	"errors"
	"io"
	"time"
)

// errLimit ends the copying once LimitBytes were written.
var errLimit = errors.New("byte limit reached")

// stampFormat is RFC 3339 with nine digits, so that lines stay aligned.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// bufferSize is how much is read, and written, at once.
const bufferSize = 32 << 10

// output turns log entries into the lines that were asked for.
type output struct {
	w    io.Writer
	opts Options
	left int64
	buf  []byte
	// open says for stdout and stderr whether a line is begun but not ended.
	open [2]bool
	// stream and skip are those of the entry that is being written.
	stream int
	skip   bool
}

func newOutput(w io.Writer, opts Options) *output {
	return &output{w: w, opts: opts, left: opts.LimitBytes, buf: make([]byte, 0, bufferSize)}
}

// begin starts an entry.
func (o *output) begin(h header) error {
	o.stream = 0
	if h.stderr {
		o.stream = 1
	}
	o.skip = o.opts.Stream == Stdout && h.stderr || o.opts.Stream == Stderr && !h.stderr
	if o.skip || o.opts.Since.IsZero() && !o.opts.Timestamps {
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(h.stamp))
	if err != nil {
		return nil // shown as it is rather than lost
	}
	if at.Before(o.opts.Since) {
		o.skip = true
		return nil
	}
	if !o.opts.Timestamps || o.open[o.stream] {
		return nil
	}
	var stamp [len(stampFormat) + 1]byte
	return o.write(append(at.AppendFormat(stamp[:0], stampFormat), ' '))
}

// text writes a piece of the entry's text.
func (o *output) text(b []byte) error {
	if o.skip || len(b) == 0 {
		return nil
	}
	o.open[o.stream] = b[len(b)-1] != '\n'
	return o.write(b)
}

func (o *output) write(b []byte) error {
	limited := o.opts.LimitBytes > 0 && int64(len(b)) >= o.left
	if limited {
		b = b[:o.left]
	}
	o.left -= int64(len(b))
	if len(o.buf)+len(b) > cap(o.buf) {
		if err := o.flush(); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, b...)
	if limited {
		return errLimit
	}
	return nil
}

// flush hands on what was gathered.
func (o *output) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}
