package logging

import (
	"io"
	"sync"
	"time"
)

// streams are the destinations of log lines. Each Write is one whole line.
type streams struct {
	// out receives all lines except errors; it is nil if there is only one stream.
	out, err io.Writer
	// held is out if out is a buffer; otherwise nil.
	held *buffer
}

func newStreams(c Config) streams {
	// Both writers share one lock, because they may write to the same file.
	mu := &sync.Mutex{}
	s := streams{err: &lockedWriter{mu: mu, w: c.Err}}
	if !c.SplitStream {
		return s
	}
	s.out = &lockedWriter{mu: mu, w: c.Out}
	if c.InfoBufferSize > 0 {
		s.held = &buffer{w: s.out, size: c.InfoBufferSize, every: c.FlushFrequency}
		s.out = s.held
	}
	return s
}

func (s streams) flush() {
	if s.held != nil {
		s.held.flush()
	}
}

func (s streams) close() {
	if s.held != nil {
		s.held.close()
	}
}

// router returns a writer of lines in klog's format.
func (s streams) router() io.Writer {
	if s.out == nil {
		return s.err
	}
	return router{s}
}

// router writes each line to out or err, depending on its first letter, which is the severity.
type router struct{ streams }

func (r router) Write(line []byte) (int, error) {
	if len(line) > 0 && line[0] == 'I' {
		return r.out.Write(line)
	}
	return r.err.Write(line)
}

// lockedWriter lets one goroutine write at a time, so that lines stay whole.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// buffer buffers lines until another line would exceed the size in bytes, or until the first line has waited as long
// as the interval every. Unlike the buffers of bufio and zap it continues after a write has failed: a disk that was
// full for a while must not end logging for good.
type buffer struct {
	w     io.Writer
	size  int64
	every time.Duration

	mu   sync.Mutex
	held []byte
	// late expires when the first buffered line has waited long enough. It is nil until a line was buffered: a timer
	// that is made earlier could expire before the field is set.
	late   *time.Timer
	closed bool
}

// Write buffers or writes a line, which has to be complete.
func (b *buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(len(b.held)+len(line)) > b.size {
		b.write()
	}
	if b.closed || int64(len(line)) > b.size {
		return b.w.Write(line)
	}
	switch {
	case len(b.held) > 0: // the timer is running
	case b.late == nil:
		b.late = time.AfterFunc(b.every, b.flush)
	default:
		b.late.Reset(b.every)
	}
	b.held = append(b.held, line...)
	return len(line), nil
}

// write writes the buffered lines; the caller holds the lock. Lines that can't be written are lost, as they are without
// a buffer.
func (b *buffer) write() {
	if b.late != nil {
		b.late.Stop()
	}
	if len(b.held) > 0 {
		_, _ = b.w.Write(b.held)
		b.held = b.held[:0]
	}
}

func (b *buffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write()
}

// close writes the buffered lines, and ends buffering.
func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write()
	b.closed = true
}
